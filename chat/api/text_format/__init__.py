"""Text completions as every dialect writes them, from the updates of one run per prompt."""
