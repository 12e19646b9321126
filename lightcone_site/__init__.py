"""The installation: settings, URL table, and the entry points of its processes. Importing it loads nothing."""
