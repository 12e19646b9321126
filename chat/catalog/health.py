"""The state of the installation and of each of its models, from the leases of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from redis.exceptions import RedisError

from chat.relay.state.workers import STATE_ORDER, UNLOADED, ModelCondition, WorkerLease, model_conditions
from chat.relay.web.dispatcher import dispatcher_of_loop

ANSWER_TIMEOUT_S = 2.0

Conditions = Mapping[str, ModelCondition]


async def workers_live() -> list[WorkerLease]:
    """Return the leases of live workers; none while Valkey is away."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await dispatcher_of_loop().workers()
    except (RedisError, OSError):
        return []


async def models_live() -> Conditions:
    """Return the condition of each model that has a worker, by name; all others are UNLOADED."""
    return model_conditions(await workers_live())


async def installation_state() -> str:
    """Return the best state among the models: `ready` if one serves, `unloaded` if there is no worker."""
    states = {condition.state for condition in (await models_live()).values()}
    return next((state for state in STATE_ORDER if state in states), UNLOADED.state)
