// @ts-check
// What the JSON of a JSON Schema has beside any JSON: the keywords that answers can be held to, and what the server says, at its place.
import { jsonHints } from "../view/json_hints.js";

/** @import { Extension } from "../../../vendor/codemirror.js" */
/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { Library } from "../view/json_editor.js" */

/** What the server says of a schema. `path`: a JSON pointer. @typedef {{message: string, path?: string}} Said */

const TYPES = ["string", "integer", "number", "boolean", "object", "array", "null"];
const FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"];
const PART = { $ref: "#" };
const PARTS = { type: "array", items: PART };
const NAMED = { type: "object", additionalProperties: PART };
const [TEXT, NUMBER, TEXTS] = [{ type: "string" }, { type: "number" }, { type: "array", items: { type: "string" } }];

/** The keywords that answers can be held to, as a JSON Schema (draft 2020-12). */
const KEYWORDS = {
  type: "object",
  properties: {
    type: { anyOf: [{ enum: TYPES }, { type: "array", items: { enum: TYPES } }] },
    ...{ title: TEXT, description: TEXT, enum: { type: "array" }, const: {} },
    ...{ properties: NAMED, required: TEXTS, additionalProperties: { anyOf: [{ type: "boolean" }, PART] }, patternProperties: NAMED, propertyNames: PART },
    ...{ minProperties: NUMBER, maxProperties: NUMBER, items: { anyOf: [PART, { type: "boolean" }] }, prefixItems: PARTS, minItems: NUMBER, maxItems: NUMBER },
    ...{ pattern: TEXT, format: { enum: FORMATS }, minLength: NUMBER, maxLength: NUMBER },
    ...{ minimum: NUMBER, maximum: NUMBER, exclusiveMinimum: NUMBER, exclusiveMaximum: NUMBER, multipleOf: NUMBER },
    ...{ anyOf: PARTS, oneOf: PARTS, allOf: PARTS, $ref: TEXT, $defs: NAMED },
  },
};

/** @param {Library} library @param {Signal<Said[]>} said @returns {Extension[]} */
export function schemaHints(library, said) {
  const { StateEffect, ViewPlugin } = library;
  const told = StateEffect.define();
  const listener = ViewPlugin.define((view) => {
    let isGone = false;
    // Not within an update of the editor, which may be what has changed the schema.
    const end = said.subscribe(() => queueMicrotask(() => isGone || view.dispatch({ effects: told.of(null) })));
    return {
      destroy() {
        isGone = true;
        end();
      },
    };
  });
  const isNew = (/** @type {any} */ update) => update.transactions.some((/** @type {any} */ one) => one.effects.some((/** @type {any} */ effect) => effect.is(told)));
  return [...jsonHints(library, { schema: () => KEYWORDS, problemsOf: () => said.value.map(placed), isNew }), listener];
}

/** @param {Said} said */
const placed = ({ message, path = "" }) => ({ message, path: path.split("/").slice(1).map(stepOf) });

/** A step of a JSON pointer (RFC 6901). @param {string} token */
const stepOf = (token) => token.replaceAll("~1", "/").replaceAll("~0", "~");
