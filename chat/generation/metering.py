"""What a request is measured by: the scopes that it counts to, with their limits, and the hard budgets over them."""

from __future__ import annotations

from dataclasses import dataclass, field

from chat.access.keys import Caller
from chat.catalog.services import ModelEntry
from chat.relay.state.meters import BudgetMeter, Scope


@dataclass(frozen=True, slots=True)
class Metering:
    """The meters of a request."""

    scopes: tuple[Scope, ...]
    budgets: tuple[BudgetMeter, ...] = ()
    stamps: dict[str, str] = field(default_factory=dict)
    """Of the budgets that its spending counts to, soft ones too: the window by id."""
    context: int | None = None
    """The tokens that the model takes, if known."""

    @property
    def max_context(self) -> int | None:
        """Return the tightest context that the limits allow; None: the model's."""
        return min((scope.max_context for scope in self.scopes if scope.max_context), default=None)


async def metering_of(*, caller: Caller, model: ModelEntry | None = None) -> Metering:
    """Return the meters of a caller's request to a model."""
    scopes = caller.scopes()
    if model is None:
        return Metering(scopes)
    if model.scope is not None:
        scopes = (*scopes, model.scope)
    return Metering(scopes, context=model.max_model_len)
