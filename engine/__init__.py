"""Lightcone's inference engine. Knows no Django, no Celery and no Redis; see README.md in this folder."""
