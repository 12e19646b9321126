"""The functions of board.py as coroutines that stop before each word they read or write, so that a test decides whose turn it is."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Generator
from random import Random

from engine.kernels.cpu import work_sharing as board

STEPS = ("add_atomic", "exchange_atomic", "replace_atomic", "load_atomic", "store_atomic", "run_part", "_wait", "_post")
NO_STEPS = ("pause", "let_others_run")
SHARED = ("_put_up", "_take_part", "_work_until_done", "_sleep", "lead", "help_along", "dismiss")
MOST_TURNS = 100_000

Thread = Generator[tuple, int | None, object]


class _Steps(ast.NodeTransformer):
    """Calls of STEPS become yields of their name and arguments, calls of SHARED yield what those yield."""

    def visit_Call(self, node: ast.Call) -> ast.expr:  # noqa: N802 (ast's name)
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in STEPS:
            return ast.Yield(ast.Tuple([ast.Constant(name), *node.args], ast.Load()))
        if name in NO_STEPS:
            return ast.Constant(None)
        return ast.YieldFrom(node) if name in SHARED else node


class Program:
    """Stands for a program, at an address of its own: the parts of each operation. None may be looked at once it is over."""

    def __init__(self, address: int, parts: list[int]) -> None:
        self.address = address
        self.parts = parts
        self.is_over = False

    def __getitem__(self, index: int) -> int:
        assert not self.is_over
        return len(self.parts) if index == 0 else self.parts[(index - board.FIRST) // board.STRIDE]


class World:
    """A board at address 0 with its threads. Every part must run once, behind the operations before it, and within its program.

    `number`: of operations that were ever put up.
    """

    def __init__(self, programs: list[list[int]], num_helpers: int, number: int = 0) -> None:
        self._words = {board.STATE: number << (2 * board.COUNT_BITS)}
        self._posts = 0
        self._programs = {place + 1: Program(place + 1, parts) for place, parts in enumerate(programs)}
        self._done: list[tuple[int, int, int]] = []
        """Operation, part and thread of what ran of the program under way."""
        self._board = _as_coroutines({"words_from": self._programs.get, "address_of": lambda program: program.address})
        self._threads: dict[int, Thread] = {0: self._calls()} | {
            helper: self._board["help_along"](0, helper) for helper in range(1, num_helpers + 1)
        }

    def run(self, random: Random) -> None:
        """Until all threads have left, in an order by chance; now and then one is kept waiting for long."""
        pending = {number: next(thread) for number, thread in self._threads.items()}
        slow, weights = None, [random.choice((1, 1, 20)) for _ in pending]
        for turn in range(MOST_TURNS):
            if turn % 20 == 0:
                slow = random.choice((None, *pending))
            able = [number for number, (step, *_) in pending.items() if step != "_wait" or self._posts > 0]
            assert able, "everybody sleeps"
            ready = [number for number in able if number != slow] or able
            number = random.choices(ready, [weights[number] for number in ready])[0]
            try:
                pending[number] = self._threads[number].send(self._take_step(*pending[number]))
            except StopIteration:
                del pending[number]
            if not pending:
                return
        raise AssertionError("nobody gets on")

    def run_until_asleep(self, helper: int) -> None:
        """Let one thread alone get on until it sleeps."""
        step = next(self._threads[helper])
        while step[0] != "_wait":
            step = self._threads[helper].send(self._take_step(*step))

    def posts_of_first(self) -> int:
        """How many are woken before the calling thread takes a part."""
        step = next(self._threads[0])
        while step[0] != "run_part":
            step = self._threads[0].send(self._take_step(*step))
        return self._posts

    def _calls(self) -> Thread:
        """What the calling thread does."""
        for program in self._programs.values():
            self._done.clear()
            yield from self._board["lead"](0, program)
            assert len(self._done) == sum(program.parts)
            program.is_over = True
        yield from self._board["dismiss"](0)

    def _take_step(self, step: str, *arguments) -> int | None:
        if step == "run_part":
            return self._run_part(*arguments)
        if step in ("_wait", "_post"):
            self._posts += 1 if step == "_post" else -1
            return 0
        address, *values = arguments
        before = self._words.get(address, 0)
        if step == "add_atomic":
            self._words[address] = _word(before + values[0])
        elif step in ("exchange_atomic", "store_atomic"):
            self._words[address] = _word(values[0])
        elif step == "replace_atomic" and before == values[0]:
            self._words[address] = values[1]
        return before

    def _run_part(self, program: Program, index: int, thread: int, part: int, parts: int, is_first: bool) -> None:
        assert not program.is_over
        assert parts == program.parts[index]
        assert part in range(parts)
        assert (index, part) not in [done[:2] for done in self._done]
        assert sum(done[0] < index for done in self._done) == sum(program.parts[:index])
        assert is_first == ((index, thread) not in [(done[0], done[2]) for done in self._done])
        self._done.append((index, part, thread))


def _word(value: int) -> int:
    """What 64 bits keep of a number."""
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


def _as_coroutines(names: dict) -> dict:
    """The functions SHARED, whose threads soon sleep."""
    scope = vars(board) | {"PAUSES": 1, "YIELDS": 1} | names
    for name in SHARED:
        found = getattr(board, name)
        function = getattr(found, "py_func", None) or found.__wrapped__
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        tree.body[0].decorator_list = []
        exec(compile(ast.fix_missing_locations(_Steps().visit(tree)), board.__file__, "exec"), scope)  # noqa: S102 (our own source)
    return scope
