"""Keeps API keys out of logs: a logging filter that masks anything key-shaped in whatever a record carries.

Put it on every handler; a filter on a logger does not see the records of the loggers below it. Tracebacks are rendered
here, once, so that no formatter renders them again unmasked.
"""

from __future__ import annotations

import logging
import re

KEY_SHAPED = re.compile(r"(lc_[A-Za-z0-9]{1,64}_)[A-Za-z0-9]{8,}|\b(sk-)[A-Za-z0-9_-]{16,}", re.ASCII)
BEARER = re.compile(r"(?i)(\bbearer\s+)[^\s'\",;]{8,}")
CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (0x09, 0x0A)}
PLAIN = logging.Formatter()
MASK = "***"


def masked(text: str) -> str:
    """The text with the secret part of every key replaced; the key id stays, as it is public."""
    return BEARER.sub(_mask_bearer, KEY_SHAPED.sub(lambda match: f"{match[1] or match[2]}{MASK}", text))


def _mask_bearer(match: re.Match[str]) -> str:
    return match[0] if MASK in match[0] else f"{match[1]}{MASK}"


class KeyMaskingFilter(logging.Filter):
    """Masks message, arguments, traceback, stack and extra texts of every record. Lets every record through.

    Control characters of the message are escaped too, so that one record stays one line; line feeds in it become `\\n`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001  a record whose arguments do not fit must still be masked, never raise in a handler
            message = f"{record.msg!r} % {record.args!r}"
        record.msg = masked(message).translate(CONTROL).replace("\n", "\\n")
        record.args = None
        if record.exc_info:
            record.exc_text = record.exc_text or PLAIN.formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = masked(record.exc_text)
        if record.stack_info:
            record.stack_info = masked(record.stack_info)
        for name, value in record.__dict__.items():
            if name not in _OWN and isinstance(value, str):
                record.__dict__[name] = masked(value)
        return True


_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
