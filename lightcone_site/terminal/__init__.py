"""A model in the terminal: `manage.py chat` and `manage.py run`, over the API as every other client."""
