from hashlib import sha256

from engine.attention.cache_groups import CacheGroups
from engine.scheduling.prefix_cache import PrefixCache, extend_digests
from tests.engine.scheduling.sequences import make_sequence


def digests_of(prompt: list[int], root: bytes = b"tenant") -> list[bytes]:
    digests = []
    extend_digests(digests, make_sequence(1, prompt, cache_root=root), len(prompt) // 4, 4)
    return digests


def test_a_digest_is_sha256_over_the_parent_and_the_token_ids():
    expected = sha256(b"tenant" + b"".join(i.to_bytes(4, "little") for i in (1, 2, 3, 4))).digest()
    assert digests_of([1, 2, 3, 4]) == [expected]


def test_a_digest_identifies_the_whole_prefix():
    first = digests_of([1, 2, 3, 4, 5, 6, 7, 8])
    second = digests_of([9, 2, 3, 4, 5, 6, 7, 8])
    assert not set(first) & set(second)


def test_different_cache_roots_share_no_blocks():
    assert not set(digests_of(list(range(12)), b"one")) & set(digests_of(list(range(12)), b"two"))


def test_a_chain_grown_in_pieces_equals_one_made_at_once():
    sequence = make_sequence(1, list(range(6)), output_ids=list(range(10)))
    grown, whole = [], []
    for num_blocks in (1, 1, 3, 4):
        extend_digests(grown, sequence, num_blocks, 4)
    extend_digests(whole, sequence, 4, 4)
    assert grown == whole


def test_look_up_stops_at_the_first_miss():
    cache = PrefixCache(CacheGroups(4))
    cache.register(b"a", [5])
    cache.register(b"c", [6])
    assert cache.match([b"a", b"b", b"c"], 3) == [5]
    assert cache.match([b"a"], 0) == []


def test_repeated_content_keeps_its_first_block():
    cache = PrefixCache(CacheGroups(4))
    cache.register(b"a", [1])
    cache.register(b"a", [2])
    cache.forget(2)
    assert cache.match([b"a"], 1) == [1]
    cache.forget(1)
    assert cache.match([b"a"], 1) == []
    assert cache.check_integrity() == ""
