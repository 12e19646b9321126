"""A core that the test drives: it records the engine's messages and answers as scripted."""

import queue

from engine.core.link import LinkClosed
from engine.messages import (
    AbortSequences,
    AddSequence,
    AnnounceSteps,
    CoreReady,
    LoadModel,
    SequenceOutput,
    Shutdown,
    StepResult,
)

READY = CoreReady(logits_width=300, max_model_len=512, num_blocks=64)


class ScriptedCore:
    """One life of a core; `die` ends it, as does the engine's Shutdown.

    `answers_aborts` acknowledges aborts by itself.
    """

    def __init__(self, *greeting):
        self._heard = queue.SimpleQueue()
        self._said = queue.SimpleQueue()
        self._is_dead = False
        self.answers_aborts = False
        self.announces_steps = False
        self.may_load = False
        for message in greeting:
            self._said.put(message)

    def say(self, *outputs, message=None):
        self._said.put(message or StepResult(list(outputs)))

    def die(self):
        self._is_dead = True
        self._said.put(None)

    def hear(self, kind=object, timeout=20):
        """Return the next message from the engine, which must be of this kind."""
        message = self._heard.get(timeout=timeout)
        assert isinstance(message, kind), message
        return message

    def hear_sequences(self, number=1):
        return [self.hear(AddSequence) for _ in range(number)]

    def answer_abort(self):
        """Answer the next abort as the core does."""
        message = self.hear(AbortSequences)
        self.say(*(SequenceOutput(seq_id, [], finish="aborted") for seq_id in message.seq_ids))
        return message.seq_ids

    def has_heard_all(self):
        return self._heard.empty()

    # The engine's side

    def send(self, message):
        if self._is_dead:
            raise LinkClosed
        if isinstance(message, Shutdown):
            self.die()
        if isinstance(message, AnnounceSteps):
            self.announces_steps = True
            return
        if isinstance(message, LoadModel):
            self.may_load = True
            return
        if isinstance(message, AbortSequences) and self.answers_aborts:
            self.say(*(SequenceOutput(seq_id, [], finish="aborted") for seq_id in message.seq_ids))
        self._heard.put(message)

    def receive(self):
        message = self._said.get()
        if message is None:
            raise LinkClosed
        return message

    def close(self, timeout_s):
        if not self._is_dead:
            self.send(Shutdown())
