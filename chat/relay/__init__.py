"""The path of events: worker → log → layer → reader. Everything here is written in docs/architecture.md, "Streaming"."""
