"""Logits processors: code of the server or its operator that requests call by name.

See docs/adding-a-logits-processor.md.
"""
