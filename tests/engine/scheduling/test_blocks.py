from engine.attention.cache_groups import CacheGroups
from engine.scheduling.blocks import BlockPool
from engine.scheduling.prefix_cache import PrefixCache


def make_pool(num_blocks: int = 4) -> tuple[BlockPool, PrefixCache]:
    cache = PrefixCache(CacheGroups(4))
    return BlockPool(num_blocks, cache), cache


def test_the_end_of_a_chain_is_taken_again_first():
    pool, cache = make_pool()
    chain = pool.allocate(4)
    for block_id in chain:
        cache.register(b"%d" % block_id, [block_id])
    pool.release(chain)
    assert pool.allocate(4) == chain[::-1]
    assert len(cache) == 0


def test_blocks_without_content_are_taken_before_cached_ones():
    pool, cache = make_pool()
    chain = pool.allocate(4)
    cache.register(b"first", [chain[0]])
    cache.register(b"second", [chain[1]])
    pool.release(chain)
    assert set(pool.allocate(2)) == set(chain[2:])
    assert cache.match([b"first", b"second"], 2) == chain[:2]


def test_a_reused_cached_block_becomes_the_most_recent():
    pool, cache = make_pool(2)
    old, new = pool.allocate(2)
    cache.register(b"old", [old])
    cache.register(b"new", [new])
    pool.release([old])
    pool.release([new])
    pool.acquire([old])
    assert pool.num_free == 1
    pool.release([old])
    assert pool.allocate(1) == [new]
    assert old in cache


def test_a_shared_block_is_free_only_when_the_last_reference_goes():
    pool, _ = make_pool()
    chain = pool.allocate(2)
    pool.acquire(chain[:1])
    pool.release(chain)
    assert pool.num_free == 3
    assert pool.num_free_of(chain) == 1
    pool.release(chain[:1])
    assert pool.num_free == 4
    assert pool.check_integrity([]) == ""


def test_integrity_names_a_block_whose_references_do_not_balance():
    pool, _ = make_pool()
    chain = pool.allocate(1)
    assert pool.check_integrity([chain]) == ""
    assert "1 references, but 0" in pool.check_integrity([])
    assert "twice" in pool.check_integrity([chain * 2])
