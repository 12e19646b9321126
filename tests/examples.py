"""How often a property is tried: each test says how many examples `make test` takes, of which `make check` takes a
quarter.
"""

from hypothesis import settings

ORDINARY = settings.get_profile("default").max_examples
LEAST = 10


def examples(most: int, **options) -> settings:
    """The decorator of a property that wants another number of examples than the ordinary one; `options` are of
    hypothesis.
    """
    share = settings().max_examples / ORDINARY
    return settings(max_examples=min(most, max(LEAST, round(most * share))), **options)
