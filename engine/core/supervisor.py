"""The supervision of cores: starts the first one, and another in place of one that died, with a back-off and a limit.

It waits until a core has loaded its model; the messages after that are the engine's.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable

from engine.api.errors import ModelLoadError
from engine.config import EngineConfig
from engine.core.link import LinkClosed, ProcessLink
from engine.inputs.limits import ContextLimits
from engine.messages import CoreFailed, CoreProgress, CoreReady, Heartbeat, LoadModel

logger = logging.getLogger(__name__)

MAX_RESTARTS, RESTART_WINDOW_S = 3, 600.0

Progress = Callable[[str, float], None]
Connect = Callable[[EngineConfig], ProcessLink]


class CoreLost(ModelLoadError):
    """The error if a core dies while it loads a model."""


class CoreRestarter:
    """The starts of one engine's core. `close` may be called from any thread.

    `connect` and `await_ready` run on the thread that starts the engine, `replace` on its receiver thread.
    """

    def __init__(
        self,
        config: EngineConfig,
        connect: Connect,
        clock: Callable[[], float],
        started: ProcessLink | None = None,
    ) -> None:
        """`started`: the first core, if it has been started already."""
        self.num_restarts = 0
        """Cores that were started in place of dead ones."""
        self.has_processes = connect is ProcessLink
        """Cores are child processes, as in production; other helpers are then started ahead of time."""
        self._config = config
        self._connect = connect
        self._clock = clock
        self._started = started
        self._restarts: deque[float] = deque()
        self._closing = threading.Event()
        self._changed = threading.Lock()
        self._loading: ProcessLink | None = None

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def connect(self) -> ProcessLink:
        """Start a core, which waits for `await_ready` to load its model. Raises OSError."""
        link, self._started = self._started, None
        return link or self._connect(self._config)

    def await_ready(
        self, link: ProcessLink, progress: Progress | None, on_heartbeat: Callable[[], None] = lambda: None
    ) -> ContextLimits:
        """Have a core load the model and wait until it is ready. Raises ModelLoadError.

        `on_heartbeat` is called about once a second meanwhile.
        """
        with contextlib.suppress(LinkClosed):  # receive() finds that out again
            link.send(LoadModel())
        while True:
            try:
                message = link.receive()
            except LinkClosed as error:
                text = "the engine's process ended while it loaded the model; its log tells why"
                raise CoreLost(text) from error
            match message:
                case CoreProgress(phase, fraction) if progress is not None:
                    progress(phase, fraction)
                case Heartbeat():
                    on_heartbeat()
                case CoreFailed(text, detail):
                    logger.error("the core cannot load the model: %s\n%s", text, detail)
                    raise ModelLoadError(text)
                case CoreReady():
                    capacity = message.num_blocks * self._config.block_size
                    length = min(message.max_model_len, capacity) if message.num_blocks else message.max_model_len
                    return ContextLimits(
                        length,
                        message.logits_width,
                        tuple(message.processors),
                        message.hidden_size,
                        message.computed_by,
                        message.longest_chunk,
                    )

    def replace(self, on_heartbeat: Callable[[], None] = lambda: None) -> tuple[ProcessLink, ContextLimits] | None:
        """Start a core in place of the dead one, as in `await_ready`; None if cores died too often, or at `close`."""
        while True:
            now = self._clock()
            while self._restarts and self._restarts[0] < now - RESTART_WINDOW_S:
                self._restarts.popleft()
            if len(self._restarts) >= MAX_RESTARTS:
                logger.error("the core died more than %d times within %d s; giving up", MAX_RESTARTS, RESTART_WINDOW_S)
                return None
            delay_s = float(len(self._restarts))
            self._restarts.append(now)
            self.num_restarts += 1
            logger.warning("the core has died; starting it again in %.0f s", delay_s)
            if self._closing.wait(delay_s):
                return None
            if (replaced := self._start_another(on_heartbeat)) is not None:
                return replaced

    def close(self) -> None:
        """Start no more cores, and end one that still loads its model. Idempotent."""
        self._closing.set()
        with self._changed:
            if self._loading is not None:
                self._loading.close(0.0)

    def _start_another(self, on_heartbeat: Callable[[], None]) -> tuple[ProcessLink, ContextLimits] | None:
        """Start one core and wait for it; None if it does not come up."""
        with self._changed:
            if self.is_closing:
                return None
            try:
                link = self._loading = self.connect()
            except OSError:
                logger.exception("the core could not be started again")
                return None
        try:
            return link, self.await_ready(link, None, on_heartbeat)
        except ModelLoadError as error:
            if not self.is_closing:
                logger.error("the core could not be started again: %s", error.message)
            link.close(0.0)
            return None
        finally:
            with self._changed:
                self._loading = None
