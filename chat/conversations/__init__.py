"""Conversations of the playground on the server: trees of turns, one owner each, with search, export and links."""
