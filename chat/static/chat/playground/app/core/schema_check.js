// @ts-check
// Whether a value satisfies a JSON Schema: the keywords of draft 2020-12 that schemas of requests, tools and answers have. It finds facts; what is
// said of them is the business of who asks. The server's compiler has the last word on schemas; this is for marks that are shown at once.
import { canonical, isSame, isObject } from "./json.js";

/** @typedef {(string | number)[]} Path */
/**
 * @typedef {object} Failure a keyword that a value does not satisfy
 * @property {Path} path of the value, of a property that is missing or must not be there
 * @property {string} keyword `false` where nothing is allowed
 * @property {any} rule what the keyword says
 * @property {any} schema around it
 * @property {any} value
 * @property {Failure[]} [inner] what is wrong with a name; of alternatives, by the nearest one
 */
/** @typedef {{failures: Failure[], unknown: string[]}} Finding `unknown`: keywords that were not looked at */
/** @typedef {{root: any, isInteger: (value: any) => boolean, failures: Failure[], unknown: Set<string>, depth: number}} Check */
/** @typedef {(value: any, rule: any, inner: {check: Check, path: Path, schema: any}) => boolean | void} Rule false: the value fails by this keyword */

const MAX_DEPTH = 64;
const NOTES = new Set(["$schema", "$id", "$defs", "definitions", "$comment", "$anchor", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format",
  "contentEncoding", "contentMediaType", "strict"]);

/**
 * @param {any} value
 * @param {any} schema
 * @param {{root?: any, isInteger?: (value: any) => boolean}} [options] `root`: where `$ref` leads
 * @returns {Finding}
 */
export function checkValue(value, schema, { root = schema, isInteger = Number.isInteger } = {}) {
  /** @type {Check} */
  const check = { root, isInteger, failures: [], unknown: new Set(), depth: 0 };
  walk(check, value, schema, []);
  return { failures: check.failures, unknown: [...check.unknown] };
}

/** A path as it is written, behind the name of the whole value. @param {Path} path @param {string} [name] */
export const pathText = (path, name = "") => path.reduce((/** @type {string} */ text, step) => (typeof step === "number" ? `${text}[${step}]` : text ? `${text}.${step}` : step), name);

/** @param {any} value */
export const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);

/** @param {any} schema @returns {string[]} */
export const typesOf = (schema) => [schema?.type ?? []].flat();

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

/** What a schema says by itself or where its `$ref` leads. @param {any} schema @param {any} root @returns {Record<string, any>} */
export const resolved = (schema, root) => (schema?.$ref ? resolve(root, schema.$ref) : schema) ?? {};

/** @param {Check} check @param {any} value @param {any} schema @param {Path} path */
function walk(check, value, schema, path) {
  const fail = (/** @type {string} */ keyword, /** @type {any} */ rule) => check.failures.push({ path, keyword, rule, schema, value });
  if (schema === false) fail("false", false);
  if (!isObject(schema)) return;
  if (check.depth >= MAX_DEPTH) return void check.unknown.add("$ref");
  const inner = { check: { ...check, depth: check.depth + 1 }, path, schema };
  for (const [keyword, rule] of Object.entries(schema)) {
    if (!Object.hasOwn(RULES, keyword)) NOTES.has(keyword) || check.unknown.add(keyword);
    else if (isBroken(keyword, value, rule, inner, check)) fail(keyword, rule);
  }
}

/** Whether a value breaks a rule; what is no rule, such as an `enum` that is text, is not checked. @param {string} keyword @param {any} value @param {any} rule @param {any} inner @param {Check} check */
function isBroken(keyword, value, rule, inner, check) {
  try {
    return RULES[keyword](value, rule, inner) === false;
  } catch {
    check.unknown.add(keyword);
    return false;
  }
}

/** What is wrong with a value by a schema alone. @param {Check} check @param {any} value @param {any} schema @param {Path} path @returns {Failure[]} */
function failuresOf(check, value, schema, path) {
  const own = { ...check, failures: [] };
  walk(own, value, schema, path);
  return own.failures;
}

/** @param {Check} check @param {any} value @param {string[]} types */
const hasType = ({ isInteger }, value, types) => types.some((type) => (type === "integer" ? isInteger(value) : type === "number" ? Number.isFinite(value) : typeOf(value) === type));

/** A rule for values of one type. @param {string} type @param {(value: any, rule: any) => boolean} isMet @returns {Rule} */
const bound = (type, isMet) => (value, rule) => typeOf(value) !== type || isMet(value, rule);

/** A rule for parts of an object or array. @param {string} type @param {(value: any, rule: any, walkPart: (name: string | number, schema: any) => void, schema: any) => void} visit @returns {Rule} */
const parts = (type, visit) => (value, rule, { check, path, schema }) => {
  if (typeOf(value) === type) visit(value, rule, (name, part) => walk(check, value[name], part, [...path, name]), schema);
};

/** @param {string} pattern */
function expression(pattern) {
  try {
    return new RegExp(pattern, "u");
  } catch {
    return null;
  }
}

/** At least one of the alternatives, or exactly one. @param {boolean} isOne @returns {Rule} */
const alternatives = (isOne) => (value, rule, { check, path, schema }) => {
  const found = rule.map((/** @type {any} */ option) => failuresOf(check, value, option, path));
  const num = found.filter((/** @type {Failure[]} */ failures) => failures.length === 0).length;
  if (num) return num === 1 || !isOne;
  const types = rule.map((/** @type {any} */ option) => typesOf(resolved(option, check.root)));
  const isTyped = types.every((/** @type {string[]} */ own) => own.length > 0);
  /** @type {Failure[][]} */
  const meant = found.filter((/** @type {Failure[]} */ _, /** @type {number} */ at) => hasType(check, value, types[at]));
  if (isTyped && meant.length === 0) check.failures.push({ path, keyword: "type", rule: [...new Set(types.flat())], schema: {}, value });
  else if (isTyped && meant.length === 1) check.failures.push(...meant[0]);
  else check.failures.push({ path, keyword: "anyOf", rule, schema, value, inner: meant.sort((one, other) => one.length - other.length)[0] });
  return true; // it is said above
};

/** @type {Record<string, Rule>} */
const RULES = {
  type: (value, rule, { check }) => hasType(check, value, [rule].flat()),
  enum: (value, rule) => rule.some((/** @type {any} */ one) => isSame(one, value)),
  const: isSame,
  required: (value, rule, { check, path, schema }) => {
    if (!isObject(value)) return;
    for (const name of rule) if (!Object.hasOwn(value, name)) check.failures.push({ path: [...path, name], keyword: "required", rule, schema, value });
  },
  properties: parts("object", (value, rule, walkPart) => {
    for (const name of Object.keys(rule)) if (Object.hasOwn(value, name)) walkPart(name, rule[name]);
  }),
  patternProperties: parts("object", (value, rule, walkPart) => {
    for (const pattern of Object.keys(rule)) for (const name of Object.keys(value)) if (expression(pattern)?.test(name)) walkPart(name, rule[pattern]);
  }),
  additionalProperties: parts("object", (value, rule, walkPart, { properties = {}, patternProperties = {} }) => {
    const patterns = Object.keys(patternProperties).map(expression);
    for (const name of Object.keys(value)) if (!Object.hasOwn(properties, name) && !patterns.some((pattern) => pattern?.test(name))) walkPart(name, rule);
  }),
  propertyNames: (value, rule, { check, path, schema }) => {
    const names = isObject(value) ? Object.keys(value) : [];
    for (const name of names) {
      const inner = failuresOf(check, name, rule, path);
      if (inner.length) check.failures.push({ path: [...path, name], keyword: "propertyNames", rule, schema, value, inner });
    }
  },
  items: parts("array", (value, rule, walkPart, { prefixItems = [] }) => {
    for (let at = prefixItems.length; at < value.length; at += 1) walkPart(at, rule);
  }),
  prefixItems: parts("array", (value, rule, walkPart) => {
    for (let at = 0; at < Math.min(value.length, rule.length); at += 1) walkPart(at, rule[at]);
  }),
  minItems: bound("array", (value, rule) => value.length >= rule),
  maxItems: bound("array", (value, rule) => value.length <= rule),
  uniqueItems: bound("array", (value, rule) => !rule || new Set(value.map(canonical)).size === value.length),
  minProperties: bound("object", (value, rule) => Object.keys(value).length >= rule),
  maxProperties: bound("object", (value, rule) => Object.keys(value).length <= rule),
  minLength: bound("string", (value, rule) => [...value].length >= rule),
  maxLength: bound("string", (value, rule) => [...value].length <= rule),
  pattern: bound("string", (value, rule) => expression(rule)?.test(value) ?? true),
  minimum: bound("number", (value, rule) => value >= rule),
  maximum: bound("number", (value, rule) => value <= rule),
  exclusiveMinimum: bound("number", (value, rule) => value > rule),
  exclusiveMaximum: bound("number", (value, rule) => value < rule),
  multipleOf: bound("number", (value, rule) => Math.abs(value / rule - Math.round(value / rule)) < 1e-9),
  allOf: (value, rule, { check, path }) => {
    for (const part of rule) walk(check, value, part, path);
  },
  anyOf: alternatives(false),
  oneOf: alternatives(true),
  not: (value, rule, { check, path }) => failuresOf(check, value, rule, path).length > 0,
  $ref: (value, rule, { check, path }) => {
    const target = resolve(check.root, rule);
    if (target === undefined) check.unknown.add(`$ref ${rule}`);
    else walk(check, value, target, path);
  },
};
