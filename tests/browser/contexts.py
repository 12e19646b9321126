"""Browser contexts that the tests of a module share, one after another.

A page loads about a hundred modules. A new context fetches and compiles each of them, which takes longer than most
tests; a kept one finds them in its cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_MS = 90_000
"""How long tests wait for what a page does: a busy machine may take a while, and nothing is timed."""


class PatientBrowser:
    """A browser whose contexts wait for `PATIENCE_MS` unless a test says otherwise."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def new_context(self, **options: Any) -> Any:
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        return context

    def close(self) -> None:
        self._browser.close()


class Contexts:
    """Lends contexts of a browser, one for each set of options. Each is as if it were new, but for its cache."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._kept: dict[str, Any] = {}

    @contextmanager
    def one(self, **options: Any) -> Iterator[Any]:
        """Lend a context, and close its pages and forget its cookies, storage and routes at the end.

        `options` are those of playwright's `new_context`. A context that cannot be emptied is lent to nobody else.
        """
        name = json.dumps(options, sort_keys=True)
        context = self._kept.pop(name, None) or self._browser.new_context(**options)
        try:
            yield context
            for page in context.pages:
                page.close()
            context.unroute_all()
            context.set_storage_state({})
        except BaseException:
            context.close()
            raise
        self._kept[name] = context
