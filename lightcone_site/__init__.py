"""The installation: settings, URL table, and the entry points of its processes. Importing this package loads nothing."""
