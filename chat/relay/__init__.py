"""The path of events from a worker to its readers: worker → log in Valkey → Channels layer → reader.

state/ holds runs in Valkey and the Lua scripts, worker/ and web/ the two ends. docs/architecture.md has the whole life.
"""
