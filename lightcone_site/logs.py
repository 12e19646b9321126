"""Logging of all processes: a record is one line, with control characters escaped and keys masked."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from django.conf import settings

from chat.masking import escape_controls, mask_secrets


def record_line(_logger: Any, _method: str, event: dict[str, Any]) -> str:
    """Return one record as a line: time, level, logger, message, bound fields, traceback."""
    head = (
        f"{event.pop('timestamp', '')} {event.pop('level', 'info').upper():<7} {event.pop('logger', '-')}: "
        f"{event.pop('event', '')}"
    )
    traceback = event.pop("exception", None)
    fields = "".join(f" {name}={value}" for name, value in event.items())
    return mask_secrets(escape_controls(head + fields + (f" | {traceback}" if traceback else "")))


class ResponseLogFilter(logging.Filter):
    """Filters Django's records about responses, which have a status; other records pass.

    Failures (5xx) keep tracebacks. Of refusals only pages forbidden to an account (403) and suspicious requests pass.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", None)
        if status is None:
            return True
        if status >= 500:
            return record.exc_info is not None
        record.exc_info = record.exc_text = None
        return status == 403 or record.name.startswith("django.security")


def logging_settings(level: str) -> dict[str, Any]:
    """Return Django's LOGGING: every record goes to standard error through `record_line`."""
    shared = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": shared,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    record_line,
                ],
            }
        },
        "filters": {"answers": {"()": ResponseLogFilter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["answers"]}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            "daphne": {"level": "WARNING"},
            "kombu": {"level": "WARNING"},
            "httpx2": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
        },
    }


def settings_remarks_log() -> None:
    """Log remarks on the environment: unknown settings and old names. Each process does so once, at its start."""
    if settings.LIGHTCONE_SETTINGS_REMARKS:
        logging.getLogger(__name__).warning("%s", settings.LIGHTCONE_SETTINGS_REMARKS)
