"""What the prefix cache gives away: cheap before dear, ends before beginnings, and in the end everything."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import EmbedOptions
from engine.attention.cache_groups import NO_BLOCK, CacheGroups
from engine.scheduling.blocks import BlockTables
from engine.scheduling.eviction import MAX_CREDIT, NEVER, TENANT_SHARE, DueQueue, EvictionOrder
from engine.scheduling.prefix_cache import extend_digests
from tests.engine.scheduling.sequences import make_sequence
from tests.examples import examples

BLOCK_SIZE = 2
SEEDS = st.integers(0, 1 << 32).map(random.Random)
"""Of tokens that never come twice; hypothesis's own random numbers would."""


class Server:
    """Block tables that compute prompts, of which several may run at a time."""

    def __init__(self, num_blocks, windows=(0,)):
        self.tables = BlockTables(num_blocks, BLOCK_SIZE, True, CacheGroups(BLOCK_SIZE, windows, chunk_tokens=8))
        self.running = []
        self.num_sequences = 0

    def start(self, prompt, tenant="", *, is_whole=False):
        """Compute a prompt and keep it running, if there is room. One that `is_whole` takes nothing from the cache."""
        self.num_sequences += 1
        embed = EmbedOptions("mean") if is_whole else None
        sequence = make_sequence(self.num_sequences, prompt, cache_root=tenant.encode(), tenant=tenant, embed=embed)
        self.tables.open(sequence)
        matched = self.tables.match(sequence)
        if not self.tables.has_room(sequence, matched, 0):
            self.tables.close(sequence)
            return None
        self.tables.take(sequence, matched)
        sequence.num_cached = sequence.num_computed = first = self.tables.num_matched(matched)
        while sequence.num_computed < len(prompt):
            if sequence.num_placed == sequence.num_computed:
                self.tables.extend(sequence, len(prompt))
            if sequence.num_placed == sequence.num_computed:
                break
            sequence.num_computed = min(len(prompt), sequence.num_placed)
            self.tables.register(sequence, first // BLOCK_SIZE)
            first = sequence.num_computed
        self.running.append(sequence)
        return sequence

    def end(self, sequence):
        self.running.remove(sequence)
        self.tables.close(sequence)

    def serve(self, prompt, tenant=""):
        """Compute a prompt from beginning to end; return how many of its tokens the cache had."""
        sequence = self.start(prompt, tenant)
        self.end(sequence)
        return sequence.num_cached

    def num_found(self, prompt, tenant=""):
        sequence = make_sequence(0, [*prompt, 0], cache_root=tenant.encode())
        self.tables.open(sequence)
        found = self.tables.num_matched(self.tables.match(sequence))
        self.tables.close(sequence)
        return found

    def check(self):
        known = {sequence.seq_id for sequence in self.running}
        assert self.tables.check_integrity(known, self.running) == ""


def tokens(draw, count):
    return [draw.getrandbits(30) for _ in range(count)]


@examples(100)
@given(
    SEEDS,
    st.integers(8, 40),
    st.sampled_from([(0,), (0, 0), (0, 4), (0, 0, 3)]),
    st.integers(5, 60),
)
def test_no_block_is_known_whose_beginning_is_not(draw, num_blocks, windows, num_requests):
    """Of prompts that share beginnings, run beside each other, and are computed twice."""
    server, prompts = Server(num_blocks, windows), [[]]
    for _ in range(num_requests):
        parent = draw.choice(prompts)
        prompt = (parent[: draw.randint(0, len(parent))] + tokens(draw, draw.randint(1, 12)))[: 2 * num_blocks]
        if draw.random() < 0.3 and len(prompts) > 1:
            prompt = draw.choice(prompts[1:])
        if server.start(prompt, is_whole=draw.random() < 0.2):
            prompts.append(prompt)
        while server.running and draw.random() < 0.6:
            server.end(draw.choice(server.running))
        server.check()
        held = {
            tuple(sequence.prompt_ids[:end])
            for sequence in server.running
            for end in range(BLOCK_SIZE, 2 * num_blocks + 1, BLOCK_SIZE)
        }
        for prompt in prompts:
            digests = list[bytes]()
            extend_digests(digests, make_sequence(0, prompt, cache_root=b""), len(prompt) // BLOCK_SIZE, BLOCK_SIZE)
            for group in range(windows.count(0)):
                known = [server.tables.cache.blocks(digest)[group] != NO_BLOCK for digest in digests]
                ends = range(BLOCK_SIZE, len(prompt) + 1, BLOCK_SIZE)
                is_lost = [
                    not (is_known or tuple(prompt[:end]) in held) for is_known, end in zip(known, ends, strict=True)
                ]
                assert not any(known[is_lost.index(True) :] if True in is_lost else ())


@examples(40)
@given(SEEDS, st.integers(100, 300), st.sampled_from(["", "other"]))
def test_a_conversation_finds_its_beginning_again_after_chats_that_fit_the_cache(draw, num_blocks, chatter):
    """In each gap chats take as many blocks as the cache has. With the least recent first, all of it was lost."""
    server, capacity = Server(num_blocks), num_blocks * BLOCK_SIZE
    conversation, system = tokens(draw, capacity // 4), tokens(draw, 4)
    server.serve(conversation)
    while len(conversation) < capacity // 2:
        room = capacity
        while room > 0:
            chat = system + tokens(draw, draw.randint(1, capacity // 50))
            server.serve(chat, chatter)
            room -= len(chat)
        before = len(conversation) // BLOCK_SIZE * BLOCK_SIZE
        conversation = conversation + tokens(draw, capacity // 40)
        assert server.serve(conversation) >= before - capacity // 40
        server.check()


@examples(40)
@given(SEEDS, st.integers(20, 200), st.integers(1, 6))
def test_a_prefix_that_nobody_asks_for_goes_in_the_end(draw, num_blocks, num_hits):
    server = Server(num_blocks)
    prefix = tokens(draw, BLOCK_SIZE * (num_blocks - 1))
    for _ in range(num_hits):
        server.serve(prefix)
    num_given = 0
    while num_given < (MAX_CREDIT + 1) * num_blocks:
        chat = tokens(draw, BLOCK_SIZE * draw.randint(1, 4))
        server.serve(chat)
        num_given += len(chat) // BLOCK_SIZE
    assert server.num_found(prefix) == 0


def test_a_prefix_that_was_never_asked_for_again_goes_before_one_that_was():
    server, draw = Server(100), random.Random(0)
    hit, fresh = tokens(draw, 60), tokens(draw, 60)
    server.serve(hit)
    server.serve(hit)
    server.serve(fresh)
    while server.num_found(fresh):
        server.serve(tokens(draw, 4))
    assert server.num_found(hit) >= 60 - BLOCK_SIZE


def test_of_equal_credits_the_least_recent_goes_first():
    server, draw = Server(40), random.Random(0)
    chats = [tokens(draw, 8) for _ in range(20)]
    for chat in chats:
        server.serve(chat)
    assert [server.num_found(chat) for chat in chats] == [0] * 10 + [8] * 10


@pytest.mark.parametrize("num_rounds", [1, 20])
def test_a_tenant_that_asks_for_all_of_its_prefixes_leaves_others_a_part_of_the_cache(num_rounds):
    server, draw = Server(400), random.Random(0)
    prefixes = [tokens(draw, 80) for _ in range(12)]
    chat = tokens(draw, 60)
    for _ in range(5):
        for prefix in prefixes:
            server.serve(prefix, "greedy")
    server.serve(chat, "small")
    for _ in range(num_rounds):
        for prefix in prefixes:
            server.serve(prefix, "greedy")
            server.serve(tokens(draw, 20), "greedy")
    assert server.num_found(chat, "small") == 60
    assert sum(server.num_found(prefix, "greedy") for prefix in prefixes) <= TENANT_SHARE * 400 * BLOCK_SIZE


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30), st.sampled_from(["add", "remove", "pop"]))))
def test_a_queue_gives_blocks_by_time_and_then_by_arrival(operations):
    queue, expected = DueQueue(), []
    for block_id, due, operation in operations:
        known = dict(expected)
        if operation == "add" and block_id not in known:
            queue.add(block_id, due)
            expected.append((block_id, due))
        elif operation == "remove" and block_id in known:
            queue.remove(block_id, known[block_id])
            expected.remove((block_id, known[block_id]))
        elif expected:
            first = min(expected, key=lambda pair: pair[1])
            assert queue.first() == first[0]
            if operation == "pop":
                queue.remove(*first)
                expected.remove(first)
        assert sorted(queue) == sorted(block_id for block_id, _ in expected)


def test_a_queue_forgets_times_at_which_nothing_is_left():
    queue = DueQueue()
    for due in range(1000):
        queue.add(1, due)
        queue.remove(1, due)
    assert len(queue._times) < 20


def test_integrity_names_queues_that_disagree():
    order = EvictionOrder(4)
    order.delay(1, order.due(0))
    order.add(1, "one")
    assert order.check_integrity() == ""
    order._all.remove(1, order._due[1])
    assert "tenants" in order.check_integrity()
    assert order._due[2] == NEVER
