"""Media of requests: data URLs, and remote files where the operator and the key allow it. Callers use fetching.py."""
