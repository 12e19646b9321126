"""Files, and batches of requests in them: `/v1/files` and `/v1/batches` as OpenAI's clients call them. chat.batching does the work."""
