"""Limits of projects by OpenAI's published client."""

from __future__ import annotations

from typing import Any

from tests.chat.organization.conftest import World
from tests.chat.organization.test_projects import code_of


async def test_limits_of_a_project_are_listed_changed_and_lifted(world: World, openai: Any, api: Any) -> None:
    limits, id_ = openai.projects.rate_limits, f"proj_{world.project.pk}"
    (one,) = [limit async for limit in limits.list_rate_limits(id_)]
    assert (one.object, one.model, one.max_requests_per_1_minute) == ("project.rate_limit", "*", None)
    changed = await limits.update_rate_limit(
        one.id, project_id=id_, max_requests_per_1_minute=60, max_requests_per_1_day=1000
    )
    assert changed.max_requests_per_1_minute == 60
    await world.project.arefresh_from_db()
    assert (world.project.requests_per_minute, world.project.requests_per_day) == (60, 1000)
    path = f"/v1/organization/projects/{id_}/rate_limits/{one.id}"
    assert (await api.post(path, json={"max_requests_per_1_minute": None})).status_code == 200
    await world.project.arefresh_from_db()
    assert (world.project.requests_per_minute, world.project.requests_per_day) == (None, 1000)


async def test_limits_without_a_meaning_here_are_refused_by_name(world: World, openai: Any) -> None:
    limits, id_ = openai.projects.rate_limits, f"proj_{world.project.pk}"
    for name in ("max_images_per_1_minute", "max_audio_megabytes_per_1_minute", "batch_1_day_max_input_tokens"):
        assert await code_of(limits.update_rate_limit("rl-all-models", project_id=id_, **{name: 5})) == (400, name)
    for wrong in (0, -1, 3_000_000_000):
        refused = limits.update_rate_limit("rl-all-models", project_id=id_, max_requests_per_1_minute=wrong)
        assert await code_of(refused) == (400, "max_requests_per_1_minute")
    assert await code_of(limits.update_rate_limit("rl-small", project_id=id_)) == (404, None)
    await world.project.arefresh_from_db()
    assert world.project.requests_per_minute is None
