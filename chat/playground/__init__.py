"""The browser page for people who build with the API: the same service, limits and log as the API itself."""
