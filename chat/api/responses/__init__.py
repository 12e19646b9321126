"""The Responses API: items in, items out, kept so that a conversation goes on from an id (docs/api/responses.md)."""
