// @ts-check
// Whether a value satisfies a JSON Schema: the keywords of draft 2020-12 that a schema of tools or answers has. What it does not know is named, and
// nothing is said of the value by it. The server's compiler has the last word on schemas; this is for marks that are shown at once.
import { t } from "../core/i18n.js";

/** @typedef {{path: string, message: string}} Failure */
/** @typedef {{failures: Failure[], unknown: string[]}} Finding `unknown`: keywords that were not looked at */
/** @typedef {{root: any, failures: Failure[], unknown: Set<string>, depth: number}} Check */

const MAX_DEPTH = 64;
const NOTES = new Set(["$schema", "$id", "$defs", "definitions", "$comment", "$anchor", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format",
  "contentEncoding", "contentMediaType", "strict"]);

/** @param {any} value @param {any} schema @returns {Finding} */
export function checkValue(value, schema) {
  /** @type {Check} */
  const check = { root: schema, failures: [], unknown: new Set(), depth: 0 };
  walk(check, value, schema, "");
  return { failures: check.failures, unknown: [...check.unknown] };
}

/** @param {any} value */
const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);

/** @param {any} value @param {string} type */
const hasType = (value, type) => (type === "integer" ? Number.isInteger(value) : typeOf(value) === type);

/** A value as text, for comparison: the order of names says nothing. @param {any} value @returns {string} */
const canonical = (value) =>
  JSON.stringify(value, (_, part) => (typeOf(part) === "object" ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1))) : part));

/** @param {any} one @param {any} other */
const isSame = (one, other) => canonical(one) === canonical(other);

/** @param {string} path @param {string | number} name */
const below = (path, name) => (typeof name === "number" ? `${path}[${name}]` : path ? `${path}.${name}` : name);

/** @param {Check} check @param {string} path @param {string} message */
const fail = (check, path, message) => check.failures.push({ path, message });

/** @param {any} value */
const short = (value) => {
  const text = JSON.stringify(value) ?? "";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
};

/** Whether a value satisfies a schema by itself. @param {Check} check @param {any} value @param {any} schema @param {string} path */
function passes(check, value, schema, path) {
  const own = { ...check, failures: [] };
  walk(own, value, schema, path);
  return own.failures.length === 0;
}

/** @param {Check} check @param {any} value @param {any} schema @param {string} path */
function walk(check, value, schema, path) {
  if (schema === true || schema === undefined) return;
  if (schema === false) return void fail(check, path, t("is not allowed"));
  if (typeOf(schema) !== "object") return;
  if (check.depth >= MAX_DEPTH) return void check.unknown.add("$ref");
  const inner = { ...check, depth: check.depth + 1 };
  for (const [keyword, rule] of Object.entries(schema)) {
    if (Object.hasOwn(RULES, keyword)) RULES[keyword](inner, value, rule, path, schema);
    else if (!NOTES.has(keyword)) check.unknown.add(keyword);
  }
}

/** @typedef {(check: Check, value: any, rule: any, path: string, schema: any) => void} Rule */

/** A rule for values of one type. @param {string} type @param {(value: any, rule: any) => boolean} isMet @param {(rule: any) => string} says @returns {Rule} */
const bound = (type, isMet, says) => (check, value, rule, path) => {
  if (typeOf(value) === type && !isMet(value, rule)) fail(check, path, says(rule));
};

/** @param {string} pattern */
function expression(pattern) {
  try {
    return new RegExp(pattern, "u");
  } catch {
    return null;
  }
}

/** @type {Record<string, Rule>} */
const RULES = {
  type: (check, value, rule, path) => {
    const types = [rule].flat();
    if (!types.some((type) => hasType(value, type))) fail(check, path, t("must be {types}, and is {type}", { types: types.join(" | "), type: typeOf(value) }));
  },
  enum: (check, value, rule, path) => {
    if (!rule.some((/** @type {any} */ one) => isSame(one, value))) fail(check, path, t("must be one of {values}, and is {value}", { values: rule.map(short).join(", "), value: short(value) }));
  },
  const: (check, value, rule, path) => void (isSame(rule, value) || fail(check, path, t("must be {value}", { value: short(rule) }))),
  required: (check, value, rule, path) => {
    if (typeOf(value) !== "object") return;
    for (const name of rule) if (!Object.hasOwn(value, name)) fail(check, below(path, name), t("is missing"));
  },
  properties: (check, value, rule, path) => {
    if (typeOf(value) !== "object") return;
    for (const [name, schema] of Object.entries(rule)) if (Object.hasOwn(value, name)) walk(check, value[name], schema, below(path, name));
  },
  patternProperties: (check, value, rule, path) => {
    if (typeOf(value) !== "object") return;
    for (const [pattern, schema] of Object.entries(rule)) {
      for (const name of Object.keys(value)) if (expression(pattern)?.test(name)) walk(check, value[name], schema, below(path, name));
    }
  },
  additionalProperties: (check, value, rule, path, schema) => {
    if (typeOf(value) !== "object") return;
    const patterns = Object.keys(schema.patternProperties ?? {}).map(expression);
    const further = Object.keys(value).filter((name) => !Object.hasOwn(schema.properties ?? {}, name) && !patterns.some((pattern) => pattern?.test(name)));
    for (const name of further) walk(check, value[name], rule, below(path, name));
  },
  propertyNames: (check, value, rule, path) => {
    if (typeOf(value) === "object") for (const name of Object.keys(value)) walk(check, name, rule, below(path, name));
  },
  items: (check, value, rule, path, schema) => {
    if (Array.isArray(value)) value.forEach((item, at) => at >= (schema.prefixItems?.length ?? 0) && walk(check, item, rule, below(path, at)));
  },
  prefixItems: (check, value, rule, path) => {
    if (Array.isArray(value)) value.slice(0, rule.length).forEach((item, at) => walk(check, item, rule[at], below(path, at)));
  },
  minItems: bound("array", (value, rule) => value.length >= rule, (rule) => t("must have at least {n} items", { n: rule })),
  maxItems: bound("array", (value, rule) => value.length <= rule, (rule) => t("may have at most {n} items", { n: rule })),
  uniqueItems: bound("array", (value, rule) => !rule || new Set(value.map(canonical)).size === value.length, () => t("must have no item twice")),
  minProperties: bound("object", (value, rule) => Object.keys(value).length >= rule, (rule) => t("must have at least {n} properties", { n: rule })),
  maxProperties: bound("object", (value, rule) => Object.keys(value).length <= rule, (rule) => t("may have at most {n} properties", { n: rule })),
  minLength: bound("string", (value, rule) => [...value].length >= rule, (rule) => t("must have at least {n} characters", { n: rule })),
  maxLength: bound("string", (value, rule) => [...value].length <= rule, (rule) => t("may have at most {n} characters", { n: rule })),
  pattern: bound("string", (value, rule) => expression(rule)?.test(value) ?? true, (rule) => t("must match {pattern}", { pattern: rule })),
  minimum: bound("number", (value, rule) => value >= rule, (rule) => t("must be at least {n}", { n: rule })),
  maximum: bound("number", (value, rule) => value <= rule, (rule) => t("must be at most {n}", { n: rule })),
  exclusiveMinimum: bound("number", (value, rule) => value > rule, (rule) => t("must be above {n}", { n: rule })),
  exclusiveMaximum: bound("number", (value, rule) => value < rule, (rule) => t("must be below {n}", { n: rule })),
  multipleOf: bound("number", (value, rule) => Math.abs(value / rule - Math.round(value / rule)) < 1e-9, (rule) => t("must be a multiple of {n}", { n: rule })),
  allOf: (check, value, rule, path) => rule.forEach((/** @type {any} */ schema) => walk(check, value, schema, path)),
  anyOf: (check, value, rule, path) => {
    if (!rule.some((/** @type {any} */ schema) => passes(check, value, schema, path))) fail(check, path, t("satisfies none of the alternatives"));
  },
  oneOf: (check, value, rule, path) => {
    const num = rule.filter((/** @type {any} */ schema) => passes(check, value, schema, path)).length;
    if (num !== 1) fail(check, path, num ? t("satisfies more than one of the alternatives") : t("satisfies none of the alternatives"));
  },
  not: (check, value, rule, path) => void (passes(check, value, rule, path) && fail(check, path, t("is what the schema excludes"))),
  $ref: (check, value, rule, path) => {
    const target = resolve(check.root, rule);
    if (target === undefined) check.unknown.add(`$ref ${rule}`);
    else walk(check, value, target, path);
  },
};

/** A schema by its place in the whole one, such as `#/$defs/point`. @param {any} root @param {string} ref */
export function resolve(root, ref) {
  if (typeof ref !== "string" || !ref.startsWith("#")) return undefined;
  let found = root;
  for (const step of ref.slice(1).split("/").slice(1)) {
    const name = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
    if (found === null || typeof found !== "object" || !Object.hasOwn(found, name)) return undefined;
    found = found[name];
  }
  return found;
}
