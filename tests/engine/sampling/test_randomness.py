from hashlib import blake2b

from engine.sampling.draw import uniform


def test_random_numbers_equal_the_documented_hash():
    """They may never change, as a run resumed by a newer version must draw the same numbers."""
    digest = blake2b((5).to_bytes(8, "little") + (3).to_bytes(8, "little"), digest_size=8).digest()
    assert uniform(5, 3) == (int.from_bytes(digest, "little") >> 11) / 2**53


def test_any_seed_is_taken_by_its_low_64_bits():
    assert uniform(-1, 0) == uniform(2**64 - 1, 0)
    assert uniform(2**64 + 7, 0) == uniform(7, 0)
    assert uniform(2**63, 0) != uniform(0, 0)


def test_numbers_are_uniform_over_seeds_and_over_positions():
    """Chi-square with 100 cells; 148.2 is the 0.999 quantile for 99 degrees of freedom. Fixed, so it never flakes."""
    for numbers in (
        [uniform(seed, 7) for seed in range(20_000)],
        [uniform(11, position) for position in range(20_000)],
    ):
        counts = [0] * 100
        for number in numbers:
            assert 0.0 <= number < 1.0
            counts[int(number * 100)] += 1
        assert sum((count - 200) ** 2 / 200 for count in counts) < 148.2


def test_neighbouring_positions_and_seeds_are_uncorrelated():
    pairs = [(uniform(1, i), uniform(1, i + 1)) for i in range(20_000)] + [
        (uniform(i, 1), uniform(i + 1, 1)) for i in range(20_000)
    ]
    covariance = sum((a - 0.5) * (b - 0.5) for a, b in pairs) / len(pairs)
    assert abs(covariance * 12) < 0.02
