"""Anthropic's Messages API: `/v1/messages`, `/v1/messages/count_tokens`, and the list of models as its clients read it.

schema         the fields of a request    -> checked values
conversation   its turns, block by block  -> messages of the one request schema (documents: files, search results)
translation    fields and messages        -> a ParsedRequest, with `names` for errors of later steps
blocks         the engine's deltas        -> pieces of content blocks, for answer and stream
"""
