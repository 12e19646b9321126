"""Chat completions in OpenAI's shape, as every such dialect writes them: one JSON object, or chunks in frames."""
