"""The Django application: dialects, services, relay, admin and playground."""
