"""Turn references by address or anchor into plain JSON pointers, if they lead into the document.

A schema with an `$id` is a resource of its own: references within it begin there, whatever document it stands in. Takes
checked schemas.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote, urldefrag, urljoin

from engine.structured.refusal import quote, refusal
from engine.structured.schema.check import with_sub_schemas


def plain_references(root: Any, param: str) -> Any:
    """Return the document without `$id` and anchors, with each `$ref` of the form `#/…`.

    Raises RequestError for those that lead out of it.
    """
    resources = _Resources(param)
    resources.collect(root)
    return resources.rewritten(root)


class _Resources:
    """The JSON pointers of resources by address, and of anchors by address and name."""

    def __init__(self, param: str) -> None:
        self._param = param
        self._places: dict[str, str] = {}
        self._anchors: dict[tuple[str, str], str] = {}

    def collect(self, root: Any) -> None:
        self._places[""] = ""
        self._walk(root, "", "")

    def rewritten(self, schema: Any, base: str = "") -> Any:
        """Return the schema with plain references, relative to `base`."""
        if not isinstance(schema, dict):
            return schema
        base = self._address(schema, base)
        result = with_sub_schemas(schema, lambda part, _: self.rewritten(part, base))
        if "$ref" in schema:
            result["$ref"] = self._plain(schema["$ref"], base)
        return {name: value for name, value in result.items() if name not in ("$id", "$anchor", "$dynamicAnchor")}

    def _walk(self, schema: Any, base: str, pointer: str) -> None:
        if not isinstance(schema, dict):
            return
        base = self._address(schema, base)
        if isinstance(schema.get("$id"), str):
            self._places.setdefault(base, pointer)
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(name), str):
                self._anchors.setdefault((base, schema[name]), pointer)
        with_sub_schemas(schema, lambda part, path: self._walk(part, base, pointer + "".join(map(_token, path))))

    def _address(self, schema: Any, base: str) -> str:
        """Return the address from which references within this schema begin."""
        return self._joined(base, schema["$id"]) if isinstance(schema.get("$id"), str) else base

    def _joined(self, base: str, reference: str) -> str:
        try:
            address = urldefrag(reference).url
            return urljoin(base, address) if address else base
        except ValueError as error:
            raise refusal(self._param, f"invalid schema: {quote(reference)} is not an address") from error

    def _plain(self, reference: str, base: str) -> str:
        address = self._joined(base, reference)
        fragment = urldefrag(reference).fragment
        if address not in self._places:
            message = f"$ref {quote(reference)} leads out of the schema; only references within it are followed"
            raise refusal(self._param, message)
        if not fragment or fragment.startswith(("/", "%2F", "%2f")):
            return f"#{self._places[address]}{fragment}"
        pointer = self._anchors.get((address, unquote(fragment)))
        if pointer is None:
            raise refusal(self._param, f"$ref {quote(reference)} names an anchor that no schema has")
        return f"#{pointer}"


def _token(name: str | int) -> str:
    """Return one step of a JSON pointer."""
    return "/" + percent_encoded(str(name).replace("~", "~0").replace("/", "~1"), safe="~")
