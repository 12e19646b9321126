"""Files, and batches of requests in files: `/v1/files` and `/v1/batches` of OpenAI's API, and the work on batches."""
