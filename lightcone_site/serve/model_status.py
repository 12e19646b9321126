"""What the database knows of a model, once for `serving.py`, and again and again as the process of `status_poller.py`."""

from __future__ import annotations

import json
import os
import sys
import time

from django.db import Error as DatabaseError

from lightcone_site.serve.readiness import POLL_S, ModelStatus


def model_status(name: str) -> ModelStatus | None:
    """The model's row; None while the database is busy or away."""
    from chat.catalog.models import ServedModel

    try:
        row = ServedModel.objects.filter(name=name).values_list("state", "state_reason").first()
    except DatabaseError:
        return None
    return ModelStatus(*row) if row else None


def main(name: str) -> None:
    """Write a line of JSON twice a second until nobody reads: [state, reason], or null."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lightcone_site.settings")
    import django

    django.setup()
    try:
        while True:
            status = model_status(name)
            sys.stdout.write(json.dumps(status and [status.state, status.reason]) + "\n")
            sys.stdout.flush()
            time.sleep(POLL_S)
    except BrokenPipeError:
        os._exit(0)  # nothing is left to be flushed


if __name__ == "__main__":
    main(sys.argv[1])
