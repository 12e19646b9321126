"""The routes of conversations for the signed-in page, and that of a shared one for everybody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import orjson
from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from chat.api.view import body_read, json_response
from chat.conversations import drafts, exports, files, schema, services, sharing, transfer, turns
from chat.conversations.content import content_text, question_content
from chat.conversations.disclosure import chats_export_record
from chat.conversations.facets import Filters, facets_named
from chat.conversations.frame import Visit, page_view, page_view_async, with_json_errors
from chat.conversations.models import Conversation, FacetKind, ShareLink, Turn
from chat.conversations.runs import run_public_id
from chat.conversations.search import words_of
from chat.conversations.space import conversation_get
from chat.errors import ApiError

SNIPPET_CHARS = 160
BEFORE_CHARS = 40
"""What of a snippet stands before the word that was found."""
RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})", re.ASCII)
"""One range of bytes (RFC 9110, 14.1.2), as players ask for. Any other is answered with the whole."""
NOT_INDEXED = {"X-Robots-Tag": "noindex", "Referrer-Policy": "no-referrer"}


# Conversations.


def history(request: HttpRequest, visit: Visit) -> HttpResponse:
    query = schema.query_read(request, schema.HISTORY_QUERY)
    filters = schema.filters_take(query)
    found, has_more = services.conversations_page(user_id=visit.user_id, filters=filters, **query)
    data = [conversation_object(conversation) for conversation in found]
    return json_response({"data": data, "has_more": has_more, "admins_can_read": settings.LIGHTCONE_CHAT_ADMIN_READ})


def search(request: HttpRequest, visit: Visit) -> HttpResponse:
    query = schema.query_read(request, schema.SEARCH_QUERY)
    filters = schema.filters_take(query)
    hits = services.conversations_search(
        user_id=visit.user_id, query=query["q"], limit=query["limit"], before=query["before"], filters=filters
    )
    before = hits[-1].position if len(hits) == query["limit"] else None
    return json_response({"data": [hit_object(hit, query["q"]) for hit in hits], "before": before})


def folders(request: HttpRequest, visit: Visit) -> HttpResponse:
    return json_response({"data": services.folders_list(user_id=visit.user_id)})


def facets(request: HttpRequest, visit: Visit) -> HttpResponse:
    kinds = {"models": FacetKind.MODEL, "tags": FacetKind.TAG}
    return json_response({name: facets_named(user_id=visit.user_id, kind=str(kind)) for name, kind in kinds.items()})


def create(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    fields = schema.page_body_read(request, schema.CONVERSATION)
    made = services.conversation_create(user_id=visit.user_id, public_id=conversation_id, fields=fields)
    return json_response(conversation_object(made))


def retrieve(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    found = conversation_get(user_id=visit.user_id, public_id=conversation_id)
    tree = [turn_object(turn) for turn in turns.turns_list(conversation=found)]
    is_own = request.user.pk == visit.user_id
    draft = drafts.draft_get(user_id=visit.user_id, conversation=found) if is_own else {}
    return json_response(conversation_object(found) | {"turns": tree, "draft": draft})


def change(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    fields = schema.page_body_read(request, schema.CHANGE)
    version, head = fields.pop("version"), fields.pop("head")
    found = conversation_get(user_id=visit.user_id, public_id=conversation_id)
    if any(value is not None for value in fields.values()):
        if version is None:
            raise ApiError("missing_required_parameter", "version is required with these changes", "version")
        found = services.conversation_change(
            user_id=visit.user_id, public_id=conversation_id, version=version, fields=fields
        )
    if head is not None:
        found = services.conversation_show(user_id=visit.user_id, public_id=conversation_id, head=head)
    return json_response(conversation_object(found))


def remove(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    num = services.conversations_delete(user_id=visit.user_id, public_ids=[conversation_id])
    return json_response({"num_deleted": num})


def remove_several(request: HttpRequest, visit: Visit) -> HttpResponse:
    ids = schema.page_body_read(request, schema.IDS)["ids"]
    return json_response({"num_deleted": services.conversations_delete(user_id=visit.user_id, public_ids=ids)})


def change_several(request: HttpRequest, visit: Visit) -> HttpResponse:
    fields = schema.page_body_read(request, schema.CHANGE_SEVERAL)
    if fields["folder"] is None and fields["is_archived"] is None:
        raise ApiError("missing_required_parameter", "folder or is_archived is required, what to change", "folder")
    folder = None if fields["folder"] is None else " ".join(fields["folder"].split())
    formers = services.conversations_change(
        user_id=visit.user_id, public_ids=fields["ids"], folder=folder, is_archived=fields["is_archived"]
    )
    data = [{"id": former.public_id, "folder": former.folder, "is_archived": former.is_archived} for former in formers]
    return json_response({"data": data})


def restore_several(request: HttpRequest, visit: Visit) -> HttpResponse:
    ids = schema.page_body_read(request, schema.IDS)["ids"]
    return json_response({"num_restored": services.conversations_restore(user_id=visit.user_id, public_ids=ids)})


# Their turns.


def save(request: HttpRequest, visit: Visit, conversation_id: str, turn_id: str) -> HttpResponse:
    sent = turn_sent(visit, turn_id, schema.page_body_read(request, schema.TURN))
    return json_response(turn_object(turns.turn_put(user_id=visit.user_id, conversation_id=conversation_id, sent=sent)))


def save_several(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    body = schema.page_body_read(request, schema.TURNS)
    fields = schema.fields_read(schema.NEW_CONVERSATION, body["conversation"] or {}, "conversation")
    each = [schema.fields_read(schema.SENT_TURN, turn, f"turns.{n}") for n, turn in enumerate(body["turns"])]
    sent = [turn_sent(visit, values["id"], values) for values in each]
    conversation, saved = turns.turns_put(
        user_id=visit.user_id, conversation_id=conversation_id, fields=fields, sent=sent
    )
    data = [turn_object(turn) for turn in saved]
    return json_response({"conversation": conversation_object(conversation), "turns": data})


def turn_sent(visit: Visit, turn_id: str, values: Mapping[str, Any]) -> turns.TurnSent:
    run = values["run"]
    return turns.TurnSent(
        turn_id,
        values["parent"],
        values["role"],
        values["state"],
        schema.turn_body(values),
        run_public_id=run_public_id(visit.caller, run) if run else "",
        project_id=visit.caller.project_id if run else 0,
    )


def drop(request: HttpRequest, visit: Visit, conversation_id: str, turn_id: str) -> HttpResponse:
    turns.turn_drop(user_id=visit.user_id, conversation_id=conversation_id, public_id=turn_id)
    return json_response({"num_deleted": 1})


# Their drafts.


def draft(request: HttpRequest, visit: Visit, conversation_id: str | None = None) -> HttpResponse:
    named = conversation_id is not None
    found = conversation_get(user_id=visit.user_id, public_id=str(conversation_id)) if named else None
    return json_response(drafts.draft_get(user_id=visit.user_id, conversation=found))


def keep_draft(request: HttpRequest, visit: Visit, conversation_id: str | None = None) -> HttpResponse:
    kept = schema.page_object_read(request, drafts.MAX_DRAFT_BYTES)
    saved_at = drafts.draft_put(user_id=visit.user_id, conversation_id=conversation_id, draft=kept)
    return json_response({"saved_at": saved_at.timestamp()})


def clear_draft(request: HttpRequest, visit: Visit, conversation_id: str | None = None) -> HttpResponse:
    return json_response({"num_deleted": drafts.draft_clear(user_id=visit.user_id, conversation_id=conversation_id)})


# Their files.


def add_file(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Keep the body, whatever it is."""
    request.lightcone_any_type = True
    made = files.file_put(user_id=visit.user_id, content=body_read(request))
    return json_response({"id": made.public_id, "media_type": made.media_type, "num_bytes": made.num_bytes})


def file(request: HttpRequest, visit: Visit, file_id: str) -> HttpResponse:
    """Return a file: what browsers show, to be shown, else to be saved."""
    found = files.file_get(user_id=visit.user_id, public_id=file_id)
    content, headers = bytes(found.content), {"Cache-Control": "private, no-store", "Accept-Ranges": "bytes"}
    if found.media_type == files.OTHER_TYPE:
        headers["Content-Disposition"] = "attachment"
    asked = RANGE.fullmatch(request.headers.get("Range", ""))
    start = int(asked[1]) if asked else 0
    part = content[start : int(asked[2]) + 1 if asked[2] else None] if asked else b""
    if not part:
        return HttpResponse(content, content_type=found.media_type, headers=headers)
    # Safari plays nothing of which it does not get the part that it asks for.
    headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
    return HttpResponse(part, status=206, content_type=found.media_type, headers=headers)


# Exports and links.


def export(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    name = schema.query_read(request, schema.EXPORT_QUERY)["format"]
    found = conversation_get(user_id=visit.user_id, public_id=conversation_id)
    write, content_type = transfer.EXPORTS[name]
    written = write(conversation=found)
    chats_export_record(user_id=visit.user_id, format_name=name, conversation=conversation_id)
    return HttpResponse(written, content_type=content_type, headers=_file_headers(found.title or "chat", name))


async def export_several(request: HttpRequest, visit: Visit) -> HttpResponseBase:
    """Stream a file of the conversations that are named, or of all that words and filters find."""
    fields = schema.page_body_read(request, schema.EXPORT_SEVERAL)
    name, ids, query = (fields.pop(field) for field in ("format", "ids", "q"))
    filters = schema.filters_take(fields)
    if ids is None:
        keys = await database_sync_to_async(exports.conversations_found)(
            user_id=visit.user_id, query=query, filters=filters
        )
    elif query or filters != Filters():
        raise ApiError("invalid_value", "ids must stand alone: leave out q and the filters, or ids", "ids")
    else:
        keys = await database_sync_to_async(exports.conversations_named)(user_id=visit.user_id, public_ids=ids)
    record = database_sync_to_async(chats_export_record)
    await record(user_id=visit.user_id, format_name=name, number=len(keys))
    return StreamingHttpResponse(
        exports.export_written(keys, name), content_type=transfer.EXPORTS[name][1], headers=_file_headers("chats", name)
    )


def _file_headers(title: str, format_name: str) -> dict[str, str]:
    suffix = {"markdown": "md"}.get(format_name, format_name)
    filename = quote(f"{title}.{suffix}", safe="")
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{filename}", "Cache-Control": "no-store"}


def bring(request: HttpRequest, visit: Visit) -> HttpResponse:
    values = schema.page_body_read(request, schema.IMPORT)
    made = transfer.conversations_import(
        user_id=visit.user_id, format_name=values["format"], text=values["text"], first=values["first"]
    )
    data = [conversation_object(conversation) for conversation in made.conversations]
    return json_response({"data": data, "unknown": made.unknown})


def links(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    found = sharing.links_list(user_id=visit.user_id, conversation_id=conversation_id)
    return json_response({"data": [link_object(link) for link in found]})


def share(request: HttpRequest, visit: Visit, conversation_id: str) -> HttpResponse:
    fields = schema.page_body_read(request, schema.LINK)
    made = sharing.link_create(
        user_id=visit.user_id,
        conversation_id=conversation_id,
        lives_s=fields["expires_in_s"],
        password=fields["password"] or "",
    )
    return json_response(link_object(made.link) | {"token": made.token})


def unshare(request: HttpRequest, visit: Visit, conversation_id: str, link_id: str) -> HttpResponse:
    sharing.link_revoke(user_id=visit.user_id, conversation_id=conversation_id, link_id=int(link_id))
    return json_response({"num_deleted": 1})


def read_shared(request: HttpRequest, token: str) -> HttpResponse:
    if request.method not in ("GET", "HEAD"):
        raise ApiError("method_not_allowed", "Only GET and HEAD are allowed here.", headers={"Allow": "GET, HEAD"})
    return json_response(sharing.link_read(token=token), headers=NOT_INDEXED)


# Their JSON.


def conversation_object(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.public_id,
        "title": conversation.title,
        "folder": conversation.folder,
        "tags": orjson.Fragment(conversation.tags),
        "settings": orjson.Fragment(conversation.settings),
        "head": conversation.head,
        "version": conversation.version,
        "num_turns": conversation.num_turns,
        "num_bytes": conversation.num_bytes,
        **{name: _seconds(getattr(conversation, name)) for name in INSTANTS},
    }


INSTANTS = ("pinned_at", "archived_at", "deleted_at", "created_at", "updated_at")


def turn_object(turn: Turn) -> dict[str, Any]:
    body = turns.body_of(turn)
    if turn.role == "user" and "content" in body:
        body["content"] = question_content(body["content"])
    return {
        "id": turn.public_id,
        "parent": turn.parent,
        "role": turn.role,
        "state": turn.state,
        "run": turn.run_public_id.rpartition("/")[2],
        "created_at": _seconds(turn.created_at),
        **body,
    }


def hit_object(hit: services.Hit, query: str) -> dict[str, Any]:
    conversation, turn = hit.text.conversation, hit.text.turn
    text = conversation.title if turn is None else content_text(turns.body_of(turn).get("content"))
    return {
        "conversation": conversation_object(conversation),
        "turn": None if turn is None else turn.public_id,
        "role": None if turn is None else turn.role,
        "snippet": snippet(text, query),
    }


def link_object(link: ShareLink) -> dict[str, Any]:
    return {
        "id": link.pk,
        "has_password": bool(link.password),
        "created_at": _seconds(link.created_at),
        "expires_at": _seconds(link.expires_at),
    }


def snippet(text: str, query: str) -> str:
    """Return the part of a text around the first word of a query, or its beginning where accents hide the word."""
    word = next((word for word in query.split() if words_of(word)), "")
    found = re.search(re.escape(word), text, re.IGNORECASE)
    start = max(0, found.start() - BEFORE_CHARS) if found else 0
    part = " ".join(text[start : start + SNIPPET_CHARS].split())
    return f"{'…' if start else ''}{part}{'…' if start + SNIPPET_CHARS < len(text) else ''}"


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


history_view = page_view(get=history)
search_view = page_view(get=search)
folders_view = page_view(get=folders)
facets_view = page_view(get=facets)
import_view = page_view(post=bring)
delete_view = page_view(post=remove_several)
restore_view = page_view(post=restore_several)
change_view = page_view(post=change_several)
export_several_view = page_view_async(post=export_several)
conversation_view = page_view(get=retrieve, put=create, patch=change, delete=remove)
turns_view = page_view(post=save_several)
turn_view = page_view(put=save, delete=drop)
draft_view = page_view(is_private=True, get=draft, put=keep_draft, delete=clear_draft)
files_view = page_view(is_private=True, post=add_file)
file_view = page_view(get=file)
export_view = page_view(get=export)
links_view = page_view(get=links, post=share)
link_view = page_view(delete=unshare)
shared_view = with_json_errors(read_shared)
