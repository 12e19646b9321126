"""SQLite for tests: as Django has it, but a connection that is inside the transaction of a test stays open."""
