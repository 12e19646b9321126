"""Text completions as every dialect writes them: one JSON object, or chunks in frames, from the updates of one run per
prompt.
"""
