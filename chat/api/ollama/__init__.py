"""Ollama's API: `/api/chat`, `/api/generate`, embeddings, and the models of the server, for programs made for Ollama.

fields        the fields of requests          -> checked values (options: those of `options` and of a Modelfile)
conversation  its messages                    -> messages of the one request schema
translation   fields and messages             -> a ParsedRequest, with `names` for errors of later steps
lines         the engine's events             -> JSON objects, one a line, or a single one
models, management, pulling                      routes of lists, of changes, and of pulls
"""
