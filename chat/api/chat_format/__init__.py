"""Chat completions as every dialect of OpenAI's shape writes them: one JSON object, or chunks in frames (framing.py)."""
