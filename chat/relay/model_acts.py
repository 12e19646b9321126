"""Ask the workers to load, unload or restart a model. All block; call them from threads."""

from __future__ import annotations

from django.conf import settings

from chat.relay.commands import reload_send, unload_send
from chat.relay.state.keys import Keys, model_slug
from chat.relay.valkey import Answers, valkey_connect_blocking


def model_load_ask(*, name: str) -> None:
    """Have one worker that has room load the model, as a request would. Raises redis.RedisError or OSError."""
    name_of_demand = Keys(settings.LIGHTCONE_DEPLOYMENT).demand(model_slug(name))
    with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
        answers: Answers = client
        if not answers.exists(name_of_demand):
            answers.lpush(name_of_demand, "1")


def model_unload_ask(*, name: str) -> None:
    """Have every worker unload the model once its runs have ended. Raises any error of the broker's client."""
    unload_send(name)


def model_restart_ask(*, name: str) -> None:
    """Have every worker of the model load it anew once its runs have ended. Raises any error of the broker's client."""
    reload_send(name)
