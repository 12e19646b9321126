"""The number of examples of properties: `make test` takes all of a test's examples, `make check` a quarter."""

from hypothesis import settings

ORDINARY = settings.get_profile("default").max_examples
LEAST = 10


def examples(most: int, **options) -> settings:
    """Set the number of examples of a property; `options` are those of hypothesis."""
    share = settings().max_examples / ORDINARY
    return settings(max_examples=min(most, max(LEAST, round(most * share))), **options)
