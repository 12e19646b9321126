"""The functions of work_sharing.py as coroutines that stop before each access to a shared integer.

A test thereby decides which thread runs next.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Generator
from random import Random

from engine.kernels.cpu import work_sharing

STEPS = ("add_atomic", "exchange_atomic", "replace_atomic", "load_atomic", "store_atomic", "run_part", "_wait", "_post")
NO_STEPS = ("pause", "yield_core")
FUNCTIONS = ("_publish", "_take_part", "_run_until_done", "_sleep", "run_as_leader", "worker_loop", "shutdown")
MOST_TURNS = 100_000

Thread = Generator[tuple, int | None, object]


class _Steps(ast.NodeTransformer):
    """A transformer that turns calls of STEPS into yields of name and arguments, and calls of FUNCTIONS into `yield
    from`.
    """

    def visit_Call(self, node: ast.Call) -> ast.expr:  # noqa: N802 (ast's name)
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in STEPS:
            return ast.Yield(ast.Tuple([ast.Constant(name), *node.args], ast.Load()))
        if name in NO_STEPS:
            return ast.Constant(None)
        return ast.YieldFrom(node) if name in FUNCTIONS else node


class Program:
    """A stand-in for a program at its own address: the parts of each operation. It must not be read after its end."""

    def __init__(self, address: int, parts: list[int]) -> None:
        self.address = address
        self.parts = parts
        self.is_over = False

    def __getitem__(self, index: int) -> int:
        assert not self.is_over
        if index < work_sharing.FIRST:
            return {work_sharing.START: 0, work_sharing.END: len(self.parts)}[index]
        return self.parts[(index - work_sharing.FIRST) // work_sharing.STRIDE]


class World:
    """A set of threads whose shared memory is at address 0.

    Every part must run once, after the operations before it, and within its program. `number`: operations published so
    far.
    """

    def __init__(self, programs: list[list[int]], num_helpers: int, number: int = 0) -> None:
        self._memory = {work_sharing.STATE: number << (2 * work_sharing.COUNT_BITS)}
        self._posts = 0
        self._programs = {place + 1: Program(place + 1, parts) for place, parts in enumerate(programs)}
        self._done: list[tuple[int, int, int]] = []
        """Operation, part and thread of each part of the current program that ran."""
        self._functions = _as_coroutines(
            {"int64_pointer": self._programs.get, "address_of": lambda program: program.address}
        )
        self._threads: dict[int, Thread] = {0: self._calls()} | {
            helper: self._functions["worker_loop"](0, helper) for helper in range(1, num_helpers + 1)
        }

    def run(self, random: Random) -> None:
        """Run all threads until they return, in random order; now and then one is held back for long."""
        pending = {number: next(thread) for number, thread in self._threads.items()}
        slow, weights = None, [random.choice((1, 1, 20)) for _ in pending]
        for turn in range(MOST_TURNS):
            if turn % 20 == 0:
                slow = random.choice((None, *pending))
            able = [number for number, (step, *_) in pending.items() if step != "_wait" or self._posts > 0]
            assert able, "all threads sleep"
            ready = [number for number in able if number != slow] or able
            number = random.choices(ready, [weights[number] for number in ready])[0]
            try:
                pending[number] = self._threads[number].send(self._take_step(*pending[number]))
            except StopIteration:
                del pending[number]
            if not pending:
                return
        raise AssertionError("no thread makes progress")

    def run_until_asleep(self, helper: int) -> None:
        """Run one thread by itself until it sleeps."""
        step = next(self._threads[helper])
        while step[0] != "_wait":
            step = self._threads[helper].send(self._take_step(*step))

    def posts_of_first(self) -> int:
        """Return how many threads are woken before the calling thread takes a part."""
        step = next(self._threads[0])
        while step[0] != "run_part":
            step = self._threads[0].send(self._take_step(*step))
        return self._posts

    def _calls(self) -> Thread:
        """Run every program as the calling thread, then shut down."""
        for program in self._programs.values():
            self._done.clear()
            yield from self._functions["run_as_leader"](0, program)
            assert len(self._done) == sum(program.parts)
            program.is_over = True
        yield from self._functions["shutdown"](0)

    def _take_step(self, step: str, *arguments) -> int | None:
        if step == "run_part":
            return self._run_part(*arguments)
        if step in ("_wait", "_post"):
            self._posts += 1 if step == "_post" else -1
            return 0
        address, *values = arguments
        before = self._memory.get(address, 0)
        if step == "add_atomic":
            self._memory[address] = _int64(before + values[0])
        elif step in ("exchange_atomic", "store_atomic"):
            self._memory[address] = _int64(values[0])
        elif step == "replace_atomic" and before == values[0]:
            self._memory[address] = values[1]
        return before

    def _run_part(self, program: Program, index: int, thread: int, part: int, parts: int, is_first: bool) -> None:
        assert not program.is_over
        assert parts == program.parts[index]
        assert part in range(parts)
        assert (index, part) not in [done[:2] for done in self._done]
        assert sum(done[0] < index for done in self._done) == sum(program.parts[:index])
        assert is_first == ((index, thread) not in [(done[0], done[2]) for done in self._done])
        self._done.append((index, part, thread))


def _int64(value: int) -> int:
    """Wrap a number to a signed 64-bit integer."""
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


def _as_coroutines(names: dict) -> dict:
    """Compile FUNCTIONS as coroutines, with so few pauses and yields that threads soon sleep."""
    scope = vars(work_sharing) | {"PAUSES": 1, "YIELDS": 1} | names
    for name in FUNCTIONS:
        found = getattr(work_sharing, name)
        function = getattr(found, "py_func", None) or found.__wrapped__
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        tree.body[0].decorator_list = []
        exec(compile(ast.fix_missing_locations(_Steps().visit(tree)), work_sharing.__file__, "exec"), scope)  # noqa: S102 (our own source)
    return scope
