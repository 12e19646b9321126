"""OpenAI's routes around a prompt, without a chat: text completions, tokens, embeddings; and what a chat's prompt would be."""
