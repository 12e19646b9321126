// @ts-check
// Values of fields: how each is shown, written and read.
import { t } from "../core/i18n.js";
import { parse } from "../core/json.js";
import { check } from "./value_problems.js";

/** @import { FieldFacts, Schema } from "./form_facts.js" */
/** @import { ModelFacts } from "../core/types.js" */

/** @typedef {"number" | "boolean" | "choice" | "line" | "text" | "list" | "json"} Kind */
/** @typedef {{value?: any, problem?: string}} Read what a text says: a value, nothing (unset), or a problem */

/** Which control a field has. @param {Schema} schema @returns {Kind} */
export function kindOf(schema) {
  const { type, enum: words } = schema;
  if (listItem(schema)) return "list";
  if (type === "number" || type === "integer") return "number";
  if (type === "boolean") return "boolean";
  if (type !== "string") return "json";
  return words ? "choice" : schema.maxLength ? "line" : "text";
}

/** The schema of the entries, if a field is a list of texts or whole numbers. @param {Schema} schema @returns {Schema | null} */
export function listItem(schema) {
  const list = schema.type === "array" ? schema : schema.oneOf?.find((/** @type {Schema} */ one) => one.type === "array");
  const item = list?.items;
  const others = schema.oneOf?.filter((/** @type {Schema} */ one) => one !== list && one.type !== "string") ?? [];
  return others.length === 0 && !item?.enum && (item?.type === "string" || item?.type === "integer") ? item : null;
}

/** Whether a field also takes a text as it is. @param {Schema} schema */
const takesText = (schema) => schema.type === "string" || schema.oneOf?.some((/** @type {Schema} */ one) => one.type === "string");

/** What the model takes where a field is not sent; undefined if nobody can say. @param {string} name @param {FieldFacts} facts @param {ModelFacts | undefined} model */
export const defaultOf = (name, { schema }, model) => model?.defaults?.[name] ?? schema.default;

/** Read what was typed. @param {string} text @param {FieldFacts} facts @returns {Read} */
export function readText(text, { schema, title }) {
  const kind = kindOf(schema);
  const trimmed = text.trim();
  if (trimmed === "" && (kind === "number" || kind === "json" || text === "")) return {};
  const { value, problem } = kind === "number" ? readNumber(trimmed) : kind === "json" ? readJson(trimmed, schema) : { value: text };
  if (problem) return { problem };
  const [first] = check(value, schema, title);
  return first ? { problem: first.message } : { value };
}

/** @param {string} text @returns {Read} */
const readNumber = (text) => ({ value: /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : text });

/** @param {string} text @param {Schema} schema @returns {Read} */
function readJson(text, schema) {
  const { isWhole, value, problem } = parse(text);
  if (isWhole) return { value };
  return takesText(schema) && !/^["[{]/.test(text) ? { value: text } : { problem: t("This is not valid JSON: {problem}", { problem }) };
}

/** Write a value as it is typed. @param {any} value @param {FieldFacts} facts */
export function writeText(value, { schema }) {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return value;
  return kindOf(schema) === "json" ? JSON.stringify(value, null, 2) : String(value);
}

/** Read one entry of a list; `\n`, `\t` and `\\` stand for what cannot be typed. @param {string} text @param {Schema} item */
export function readItem(text, item) {
  if (item.type === "integer") return /^-?\d+$/.test(text.trim()) ? Number(text) : text;
  return text.replace(/\\([nrt\\])/g, (_, letter) => ({ n: "\n", r: "\r", t: "\t", "\\": "\\" })[/** @type {"n"} */ (letter)]);
}

/** @param {any} value */
export const writeItem = (value) => JSON.stringify(value).replace(/^"(.*)"$/s, "$1").replaceAll('\\"', '"');

/**
 * The ends and the step of a number's slider, null for a number without bounds.
 * @param {string} name
 * @param {Schema} schema
 * @param {ModelFacts | undefined} model
 */
export function sliderOf(name, { type, minimum, maximum, exclusiveMinimum }, model) {
  const low = minimum ?? exclusiveMinimum;
  if (low === undefined || maximum === undefined) return null;
  const isLength = /^max_(completion_)?tokens$/.test(name);
  const max = isLength ? Math.min(maximum, model?.context ?? maximum) : maximum;
  const range = max - low;
  if (type === "integer") return range > 200 ? { min: 0, max: Math.ceil(max / 64) * 64, step: 64, low, high: max } : { min: low, max, step: 1, low, high: max };
  const step = range <= 1 ? 0.01 : range <= 2 ? 0.05 : 0.1;
  const min = minimum ?? low + step;
  return { min, max, step, low: min, high: max };
}
