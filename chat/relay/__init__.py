"""The path of events from a worker to its readers: worker → log in Valkey → Channels layer → reader.

state/ holds runs in Valkey and the Lua scripts, worker/ and web/ the two ends, valkey/ the connections.
docs/architecture.md has the life of a request.
"""
