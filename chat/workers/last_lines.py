"""The last log lines of a worker process and of each of its models, for the live pages."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque

from chat.masking import escape_controls, mask_secrets

LINES = 12
LINE_CHARS = 300
MAX_MODELS = 64
THREAD_PREFIX = "host "
"""Threads that load and unload a model are named after it (chat.workers.host)."""


class LastLines(logging.Handler):
    """A handler that keeps the last lines of the process, and of the threads that load or unload each model."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._of_process: deque[str] = deque(maxlen=LINES)
        self._of_models: OrderedDict[str, deque[str]] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:
            self.handleError(record)
            return
        if record.exc_info and record.exc_info[0] is not None:
            text += f" | {record.exc_info[0].__name__}: {record.exc_info[1]}"
        at = time.strftime("%H:%M:%S", time.gmtime(record.created))
        line = f"{at}Z {record.levelname} {mask_secrets(escape_controls(text))}"[:LINE_CHARS]
        self._of_process.append(line)
        name = str(record.threadName)
        if name.startswith(THREAD_PREFIX):
            model = name.removeprefix(THREAD_PREFIX)
            self._of_models.setdefault(model, deque(maxlen=LINES)).append(line)
            self._of_models.move_to_end(model)
            if len(self._of_models) > MAX_MODELS:
                self._of_models.popitem(last=False)

    def of_process(self) -> list[str]:
        return list(self._of_process)

    def of_model(self, name: str) -> list[str]:
        """Return the last lines about loading and unloading a model, the newest last."""
        return list(self._of_models.get(name, ()))
