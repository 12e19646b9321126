"""Decoding beyond one draw after the other: beam search, and speculative decoding with drafts verified in bulk."""
