"""What a request holds for its run is given back once its reader leaves."""

from typing import Any

from chat.relay.web.reader import RunReader


class Source:
    runs: Any = None

    def __init__(self) -> None:
        self.left: list[str] = []

    def leave(self, reader: RunReader, *, is_over: bool) -> None:
        self.left.append(reader.run_id)

    async def stop(self, run_id: str, outcome: Any) -> None:
        """Nothing runs here."""


async def test_acts_follow_the_first_leave_once_and_at_once_behind_it():
    source, acts = Source(), []
    reader = RunReader("run", source)
    reader.when_left(lambda: acts.append("before"))
    assert acts == []
    reader.leave()
    reader.leave()
    assert (source.left, acts) == (["run"], ["before"])
    reader.when_left(lambda: acts.append("behind"))
    assert acts == ["before", "behind"]
