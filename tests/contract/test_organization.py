"""`/v1/organization` of a started server: each described example, in the life of a project, with OpenAI's client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from chat.api.openapi.document import operations
from tests.contract.conftest import browser_of
from tests.served import ServedLightcone

pytestmark = pytest.mark.live

ROUTE = "/v1/organization"
PASSWORD = "a-long-passphrase-0"  # noqa: S105


class Examples:
    """Sends described examples with an admin key and real ids, and notes which were sent."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.bodies = {
            route.removeprefix(f"POST {ROUTE}"): operation["requestBody"]["content"]["application/json"]["example"]
            for route, operation in operations().items()
            if route.startswith(f"POST {ROUTE}") and "requestBody" in operation
        }
        self.sent: set[str] = set()

    def post(self, path: str, *ids: str, **changed: Any) -> dict[str, Any]:
        self.sent.add(path)
        found = iter(ids)
        address = re.sub(r"{\w+}", lambda _: next(found), path)
        answer = self.client.post(ROUTE + address, json=self.bodies[path] | changed)
        assert answer.status_code == 200, answer.text
        answered: dict[str, Any] = answer.json()
        return answered


@pytest.fixture
def key(lightcone: ServedLightcone) -> Iterator[str]:
    """Make an admin key as a person does, in the console."""
    with browser_of(lightcone) as browser:
        address = "/admin/chat/adminkey/add/"
        page = browser.get(address).text
        org = re.search(r'<option value="(\d+)" selected', page)
        assert org is not None
        form = {"name": "terraform", "org": org[1], "networks": "127.0.0.0/8", "expires_at_0": "", "expires_at_1": ""}
        made = browser.post(address, data=form | {"csrfmiddlewaretoken": browser.cookies["lightcone_csrf"]})
        text = re.search(r"lca_\w+", made.text)
        assert text is not None, made.text[-2000:]
        yield text[0]


@pytest.fixture
def client(lightcone: ServedLightcone, key: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lightcone.base_url, headers={"Authorization": f"Bearer {key}"}, timeout=120) as client:
        yield client


def accepted(link: str, name: str) -> None:
    """Make the account of an invitation, as the invited person does."""
    with httpx.Client(follow_redirects=True) as guest:
        page = guest.get(link)
        form = {"username": name, "email": f"{name}@example.com", "password1": PASSWORD, "password2": PASSWORD}
        form["csrfmiddlewaretoken"] = guest.cookies["lightcone_csrf"]
        guest.post(str(page.url), data=form, headers={"Origin": f"{page.url.scheme}://{page.url.netloc.decode()}"})


def test_every_example_is_answered_in_the_life_of_a_project(
    lightcone: ServedLightcone, client: httpx.Client, key: str
) -> None:
    examples = Examples(client)
    organization = openai.OpenAI(base_url=lightcone.api_url, admin_api_key=key, max_retries=0).admin.organization

    project = examples.post("/projects")["id"]
    assert examples.post("/projects/{project_id}", project)["name"] == "Search and answers"
    examples.post("/projects/{project_id}/rate_limits/{rate_limit_id}", project, "rl-all-models")

    invite = examples.post("/invites", projects=[{"id": project, "role": "member"}])
    accepted(invite["link"], "bob")
    (bob,) = [person.id for person in organization.users.list() if person.email == "bob@example.com"]
    organization.projects.users.delete(bob, project_id=project)
    examples.post("/projects/{project_id}/users", project, user_id=bob)
    examples.post("/projects/{project_id}/users/{user_id}", project, bob)
    assert examples.post("/users/{user_id}", bob)["role"] == "viewer"

    account = examples.post("/projects/{project_id}/service_accounts", project)
    place = (project, account["id"])
    assert examples.post("/projects/{project_id}/service_accounts/{account_id}", *place)["name"] == "release"
    second = examples.post("/projects/{project_id}/service_accounts/{account_id}/api_keys", *place)
    for text in (account["api_key"]["value"], second["value"]):
        models = openai.OpenAI(base_url=lightcone.api_url, api_key=text, max_retries=0).models.list()
        assert lightcone.model in {model.id for model in models}

    admin_key = examples.post("/admin_api_keys")
    other = openai.OpenAI(base_url=lightcone.api_url, admin_api_key=admin_key["value"], max_retries=0)
    assert project in {one.id for one in other.admin.organization.projects.list()}
    assert examples.sent == set(examples.bodies)

    organization.admin_api_keys.delete(admin_key["id"])
    with pytest.raises(openai.AuthenticationError):
        other.admin.organization.projects.list()
    organization.projects.service_accounts.delete(account["id"], project_id=project)
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=lightcone.api_url, api_key=second["value"], max_retries=0).models.list()
    organization.users.delete(bob)
    assert organization.projects.archive(project).status == "archived"


def used(organization: Any, **asked: Any) -> list[Any]:
    return [result for bucket in organization.usage.completions(**asked).data for result in bucket.results]


def test_use_of_a_service_account_is_in_usage_and_costs(
    lightcone: ServedLightcone, client: httpx.Client, key: str
) -> None:
    organization = openai.OpenAI(base_url=lightcone.api_url, admin_api_key=key, max_retries=0).admin.organization
    project = organization.projects.create(name="Counted")
    account = organization.projects.service_accounts.create(project.id, name="nightly")
    app = openai.OpenAI(base_url=lightcone.api_url, api_key=account.api_key.value, max_retries=0)
    answer = app.chat.completions.create(
        model=lightcone.model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=5, temperature=0
    )
    grouped = {"project_ids": [project.id], "group_by": ["user_id"], "bucket_width": "1d"}
    rows = used(organization, start_time=answer.created - 60, **grouped)
    while not rows:  # The log is written behind the answer. The test's time limit ends a wait in vain.
        rows = used(organization, start_time=answer.created - 60, **grouped)
    (row,) = rows
    assert row.user_id == account.id
    assert (row.input_tokens, row.output_tokens) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    organization.projects.archive(project.id)
    with pytest.raises(openai.AuthenticationError):
        app.models.list()


def test_a_key_of_each_kind_is_refused_where_the_other_belongs(
    lightcone: ServedLightcone, client: httpx.Client, key: str
) -> None:
    assert client.get("/v1/models").status_code == 401
    refused = client.get(f"{ROUTE}/projects", headers={"Authorization": f"Bearer {lightcone.api_key}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
