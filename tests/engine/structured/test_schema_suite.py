"""The public JSON Schema Test Suite (draft 2020-12, `make suite`): a schema is enforced or refused with a reason.

Texts of an enforced schema are valid by an independent validator and by the suite's own instances; formats are tested
elsewhere. Objects stay open (`disable_additional_properties: false`), as in the suite.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from engine.api import RequestError
from tests.engine.structured.walking import admits, schema, spellings, template_of, text_of, walks

SUITE = Path(__file__).parents[3] / ".venv" / "json-schema-suite" / "tests" / "draft2020-12"
FILES = sorted(path.relative_to(SUITE).as_posix() for path in SUITE.rglob("*.json")) or ["(not fetched)"]
NUM_WALKS = 10

pytestmark = pytest.mark.skipif(not SUITE.is_dir(), reason="needs the JSON Schema Test Suite (make suite)")

ENFORCED = [
    "additionalProperties", "allOf", "anyOf", "const", "defs", "enum", "exclusiveMaximum", "exclusiveMinimum", "items",
    "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "pattern",
    "prefixItems", "properties", "propertyNames", "ref", "required", "type",
]  # fmt: skip
"""Files on keywords that are enforced everywhere."""
NUM_ENFORCED = {
    "additionalProperties": 8, "allOf": 10, "anchor": 4, "anyOf": 7, "boolean_schema": 0, "const": 15, "contains": 0,
    "content": 4, "default": 3, "defs": 0, "dependentRequired": 0, "dependentSchemas": 0, "dynamicRef": 1, "enum": 14,
    "exclusiveMaximum": 1, "exclusiveMinimum": 1, "format": 19, "if-then-else": 0, "infinite-loop-detection": 1,
    "items": 10, "maxContains": 0, "maxItems": 2, "maxLength": 2, "maxProperties": 3, "maximum": 2, "minContains": 0,
    "minItems": 2, "minLength": 2, "minProperties": 2, "minimum": 2, "multipleOf": 1, "not": 0, "oneOf": 2,
    "optional/anchor": 1, "optional/bignum": 3, "optional/cross-draft": 0, "optional/dependencies-compatibility": 0,
    "optional/dynamicRef": 0, "optional/ecmascript-regex": 18, "optional/float-overflow": 0,
    "optional/format-assertion": 2, "optional/format/date-time": 1, "optional/format/date": 1,
    "optional/format/duration": 1, "optional/format/ecmascript-regex": 1, "optional/format/email": 1,
    "optional/format/hostname": 1, "optional/format/idn-email": 1, "optional/format/idn-hostname": 2,
    "optional/format/ipv4": 1, "optional/format/ipv6": 1, "optional/format/iri-reference": 1,
    "optional/format/iri": 1, "optional/format/json-pointer": 1, "optional/format/regex": 1,
    "optional/format/relative-json-pointer": 1, "optional/format/time": 1, "optional/format/unknown": 1,
    "optional/format/uri-reference": 1, "optional/format/uri-template": 1, "optional/format/uri": 1,
    "optional/format/uuid": 1, "optional/id": 1, "optional/no-schema": 1, "optional/non-bmp-regex": 2,
    "optional/refOfUnknownKeyword": 3, "optional/unknownKeyword": 0, "pattern": 2, "patternProperties": 2,
    "prefixItems": 4, "properties": 6, "propertyNames": 6, "ref": 28, "refRemote": 0, "required": 5, "type": 11,
    "unevaluatedItems": 0, "unevaluatedProperties": 0, "uniqueItems": 3, "vocabulary": 2,
}  # fmt: skip
"""Number of enforced schemas per file; a change that refuses more must lower it here."""
OTHER_REASONS = (
    r"keyword '\w+' is not supported|leads out of the schema|schema is false|a JSON Schema must be an object"
)
"""Why a schema of these files may be refused all the same."""


def groups_of(name):
    """Return schemas of a file, each with instances that are valid or not."""
    return json.loads((SUITE / name).read_text("utf-8"))


def tried(value):
    """Return the grammar of a schema, None if it is refused; and the refusal."""
    try:
        return template_of(schema(value, param="structured_outputs.json", closes_objects=False)), None
    except RequestError as error:
        return None, error


def is_text(instance):
    """Return whether a text has no half character, which no answer can have."""
    return not any("\ud800" <= character <= "\udfff" for character in text_of(instance))


def is_looked_at_elsewhere(value):
    return isinstance(value, dict) and "format" in value


def is_valid(value, text):
    """Return the validator's verdict, and True if it cannot read the schema's ECMAScript expressions."""
    try:
        return jsonschema.Draft202012Validator(value).is_valid(json.loads(text))
    except re.error:
        return True


def test_the_number_of_enforced_schemas_per_file_is_unchanged():
    """The other tests accept a refusal with a reason, so they would pass if every schema were refused."""
    found = {name: sum(tried(group["schema"])[1] is None for group in groups_of(name)) for name in FILES}
    assert found == {f"{name}.json": number for name, number in NUM_ENFORCED.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_an_enforced_schema_admits_valid_instances_only(name):
    for group in groups_of(name):
        where = f"{group['description']}: {text_of(group['schema'])}"
        template, error = tried(group["schema"])
        if error is not None:
            assert error.param == "structured_outputs.json"
            assert 20 < len(error.message) <= 1_000, where
            assert "\n" not in error.message, where
            continue
        found = walks(template, number=NUM_WALKS, length=40)
        assert found, where
        assert [text for text in found if not is_valid(group["schema"], text)] == [], where
        if not is_looked_at_elsewhere(group["schema"]):
            wrong = [text_of(case["data"]) for case in group["tests"] if not case["valid"] and is_text(case["data"])]
            assert [text for text in wrong if admits(template, text)] == [], where


@pytest.mark.parametrize("name", ENFORCED)
def test_promised_keywords_are_enforced_and_admit_all_valid_instances(name):
    for group in groups_of(f"{name}.json"):
        where = f"{group['description']}: {text_of(group['schema'])}"
        template, error = tried(group["schema"])
        if error is not None:
            assert re.search(OTHER_REASONS, error.message), f"{where}: {error.message}"
            continue
        right = [case["data"] for case in group["tests"] if case["valid"]]
        assert [
            instance for instance in right if not any(admits(template, text) for text in spellings(instance))
        ] == [], where
