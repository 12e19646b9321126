from __future__ import annotations

from chat.access.configuration import TTLCache


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_an_entry_lives_for_its_time_only() -> None:
    clock = Clock()
    cache: TTLCache[str] = TTLCache(max_entries=10, ttl_s=5, clock=clock)
    cache.put("long", "a", generation=0)
    cache.put("short", "b", generation=0, max_ttl_s=1)
    clock.now_s = 1
    assert (cache.get("long"), cache.get("short")) == ("a", None)
    clock.now_s = 5
    assert cache.get("long") is None


def test_the_least_recently_used_entry_goes_first() -> None:
    cache: TTLCache[int] = TTLCache(max_entries=2, ttl_s=5)
    cache.put("a", 1, generation=0)
    cache.put("b", 2, generation=0)
    cache.get("a")
    cache.put("c", 3, generation=0)
    assert [cache.get(name) for name in "abc"] == [1, None, 3]


def test_a_value_read_before_a_clear_is_not_stored() -> None:
    cache: TTLCache[int] = TTLCache(max_entries=2, ttl_s=5)
    generation = cache.generation
    cache.clear()
    cache.put("a", 1, generation=generation)
    assert cache.get("a") is None
