"""The error of everything that is asked of the store."""


class StoreError(Exception):
    """A refusal, as a sentence that says what to do."""
