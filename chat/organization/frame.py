"""The frame of the routes of /v1/organization: the admin key, the act, the body, lists, ids, errors.

A route is a function of what was asked (`Asked`) and of the names in its path. It runs in a thread, calls one service
and returns the object of its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from channels.db import database_sync_to_async
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import IntegrityError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from rest_framework import serializers

from chat.access.admin_keys import AdminCaller
from chat.access.models import Org
from chat.access.policy import may
from chat.access.roles import Act, Reach
from chat.api.bodies import values_sent
from chat.api.dialect import ErrorFormat, OpenAIErrorFormat
from chat.api.queries import MAX_LIMIT, list_object, query_integer
from chat.api.request.fields import bad_value, echo
from chat.api.view import Handler, admin_require, api_view, json_response, method_name
from chat.errors import ApiError

ROOT = "/v1/organization"
PAGING = ("after", "limit")
MAX_ID_CHARS = 40


class OrganizationFormat(OpenAIErrorFormat):
    name = "organization"


ORGANIZATION = OrganizationFormat()


@dataclass(frozen=True, slots=True)
class Asked:
    """What an admin key asks for."""

    caller: AdminCaller
    request: HttpRequest
    values: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the body that were sent."""

    @property
    def org(self) -> Org:
        return self.caller.org

    @property
    def person(self) -> Any:
        """Return the person as whom the key acts."""
        return self.caller.person

    def texts(self, name: str) -> list[str]:
        """Return the values of a list in the query string, which clients write as `name[]` or `name`."""
        sent = self.request.GET
        return [*sent.getlist(f"{name}[]"), *sent.getlist(name)]


Answer = Callable[..., dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Does:
    """What a method of a route does."""

    answer: Answer
    act: Act
    """What the person must be able to do in the whole organisation."""
    body: serializers.Serializer | None = None
    query: tuple[str, ...] = ()
    """The names that its query string may have; others are refused."""
    is_slow: bool = False
    """Whether it waits for others, so that it takes a thread of its own."""


ROUTES: list[tuple[str, Does]] = []
"""Every method with what it does, for the test of roles."""


def admin_view(**methods: Does) -> Handler:
    """Return a view for admin keys. It is open to bodies, which are small, because the server knows API keys alone."""
    ROUTES.extend(methods.items())
    handlers = {method: _handler(does) for method, does in methods.items()}
    allowed = ", ".join([*sorted(name.upper() for name in methods), "OPTIONS"])

    async def other(request: HttpRequest, dialect: ErrorFormat, **names: str) -> HttpResponseBase:
        await admin_require(request)
        message = f"{method_name(request)} is not allowed here; use {allowed}."
        raise ApiError("method_not_allowed", message, headers={"Allow": allowed})

    rest = {method: other for method in ("get", "post", "put", "patch", "delete") if method not in methods}
    return api_view(ORGANIZATION, is_open=True, **handlers, **rest)


def _handler(does: Does) -> Handler:
    answered = database_sync_to_async(_answered, thread_sensitive=not does.is_slow)

    async def handle(request: HttpRequest, dialect: ErrorFormat, **names: str) -> HttpResponseBase:
        caller = await admin_require(request)
        if not may(caller.person, does.act, org_id=caller.org.pk, least=Reach.ORG):
            text = f"The role of {caller.person.get_username()}, who made this key, does not let it do that."
            raise ApiError("permission_denied", text)
        _query_check(request, does.query)
        values = {} if does.body is None else await values_sent(does.body, request)
        asked = Asked(caller, request, values)
        return json_response(await answered(does.answer, asked, names))

    return handle


def _answered(answer: Answer, asked: Asked, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer. What services refuse becomes an ApiError."""
    try:
        return answer(asked, **names)
    except PermissionDenied as error:
        raise ApiError("permission_denied", str(error)) from None
    except ValidationError as error:
        raise refused(error) from None
    except ObjectDoesNotExist:
        text = "Somebody else has deleted this at this moment. Look at what there is now."
        raise ApiError("conflict", text) from None
    except IntegrityError:
        text = "Somebody else has changed the same at this moment. Look at what there is now, and send it again."
        raise ApiError("conflict", text) from None


def refused(error: ValidationError, param: str | None = None) -> ApiError:
    """Return the error for what a service refuses, with the field if the service names one."""
    fields = [name for name in getattr(error, "error_dict", {}) if not name.startswith("__")]
    return ApiError("invalid_value", " ".join(error.messages), param or (fields[0] if fields else None))


def _query_check(request: HttpRequest, known: tuple[str, ...]) -> None:
    for name in request.GET:
        if name.removesuffix("[]") not in known:
            listed = f"this route takes {', '.join(known)}" if known else "this route takes none"
            raise bad_value(name[:MAX_ID_CHARS], f"is no parameter here: {listed}", "unsupported_parameter")


async def unknown_route(request: HttpRequest, dialect: ErrorFormat, **names: str) -> HttpResponseBase:
    """Answer any other path below /v1/organization. Without an admin key nothing is revealed about paths."""
    await admin_require(request)
    raise ApiError("not_found", f"Unknown request URL: {method_name(request)} {request.path[:200]}.")


unknown = api_view(
    ORGANIZATION, is_open=True, **dict.fromkeys(("get", "post", "put", "patch", "delete"), unknown_route)
)


# Ids. They are a prefix and the primary key.

PROJECT, USER, INVITE, SERVICE_ACCOUNT, KEY = "proj_", "user-", "invite-", "svc_acct_", "key_"


def id_read(prefix: str, text: str) -> int | None:
    """Return the primary key of an id; None for a text that is none of this kind."""
    digits = text.removeprefix(prefix)
    is_number = text.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 19
    return int(digits) if is_number else None


def missing(kind: str, text: str, path: str) -> ApiError:
    listed = f"GET {ROOT}/{path} lists them"
    return ApiError("not_found", f"There is no {kind} {text[:MAX_ID_CHARS]!r} in this organisation; {listed}.")


# Lists.


def keys_page(
    asked: Asked, rows: QuerySet[Any], describe: Callable[[list[Any]], list[dict[str, Any]]], *, order: str = "asc"
) -> dict[str, Any]:
    """Return a page of keys, whose ids are no numbers: `after` is one of them, deleted or not."""
    limit = query_integer(asked.request, "limit", 20, minimum=1, maximum=MAX_LIMIT)
    if after := asked.request.GET.get("after", ""):
        last = rows.model.objects.filter(public_id=after.removeprefix(KEY)).values_list("pk", flat=True).first()
        if last is None or not after.startswith(KEY):
            raise bad_value("after", f"must be the id of an entry of this list ({KEY}…), got {echo(after)}")
        rows = rows.filter(pk__gt=last) if order == "asc" else rows.filter(pk__lt=last)
    found = list(rows.order_by("pk" if order == "asc" else "-pk")[: limit + 1])
    return list_object(describe(found[:limit]), has_more=len(found) > limit)


def page_answer(
    asked: Asked,
    rows: QuerySet[Any],
    describe: Callable[[list[Any]], list[dict[str, Any]]],
    *,
    prefix: str,
    column: str = "pk",
    is_ascending: bool = True,
) -> dict[str, Any]:
    """Return a page of rows, in the order of the column that their ids are made of.

    `after` need not exist any more: what it stood before does.
    """
    limit = query_integer(asked.request, "limit", 20, minimum=1, maximum=MAX_LIMIT)
    if after := asked.request.GET.get("after", ""):
        last = id_read(prefix, after)
        if last is None:
            raise bad_value("after", f"must be the id of an entry of this list ({prefix}…), got {echo(after)}")
        rows = rows.filter(**{f"{column}__{'gt' if is_ascending else 'lt'}": last})
    found = list(rows.order_by(column if is_ascending else f"-{column}")[: limit + 1])
    return list_object(describe(found[:limit]), has_more=len(found) > limit)


def each(describe: Callable[[Any], dict[str, Any]]) -> Callable[[list[Any]], list[dict[str, Any]]]:
    """Return what describes rows one by one."""
    return lambda rows: [describe(row) for row in rows]


def unix_seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


def deleted(kind: str, id_: str) -> dict[str, Any]:
    return {"id": id_, "object": f"{kind}.deleted", "deleted": True}
