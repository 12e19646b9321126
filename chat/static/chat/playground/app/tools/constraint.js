// @ts-check
// What form an answer was asked for, from the fields of its request: `response_format`, `structured_outputs` and their older names.
import { parse } from "../core/json.js";

/** @import { Parameters } from "../core/types.js" */

/** @typedef {"off" | "json" | "schema" | "choice" | "regex" | "grammar" | "other"} Mode */
/** @typedef {{mode: Mode, value?: any}} Constraint `value`: the schema, list or text */

const OLDER = ["guided_json", "guided_regex", "guided_choice", "guided_grammar"];
const KINDS = ["json", "regex", "choice", "grammar", "json_object", "structural_tag"];

/** @param {Parameters} parameters @returns {Constraint} */
export function constraintOf({ response_format: format, structured_outputs: structured, ...others }) {
  const told = { json: others.guided_json, regex: others.guided_regex, choice: others.guided_choice, grammar: others.guided_grammar, ...structured };
  if (format?.type === "json_object") return format.schema ? { mode: "schema", value: format.schema } : { mode: "json" };
  if (format?.type === "json_schema") return { mode: "schema", value: format.json_schema?.schema ?? {} };
  if (format && format.type !== "text") return { mode: "other" };
  if (told.json !== undefined) return { mode: "schema", value: typeof told.json === "string" ? (parse(told.json).value ?? {}) : told.json };
  for (const mode of /** @type {const} */ (["choice", "regex", "grammar"])) if (told[mode] !== undefined) return { mode, value: told[mode] };
  if (told.json_object) return { mode: "json" };
  return { mode: told.structural_tag ? "other" : "off" };
}

/** What the schema of answers is called. @param {Parameters} parameters @returns {string} */
export const schemaName = (parameters) => String(parameters.response_format?.json_schema?.name ?? "answer");

/** A name that the API takes for a schema. @param {string} typed */
export const nameFrom = (typed) => typed.replace(/[^a-zA-Z0-9_-]+/g, "_").slice(0, 64) || "answer";

/** The parameters with another constraint in place of theirs. @param {Parameters} parameters @param {Constraint} constraint @param {string} [name] of the schema @returns {Parameters} */
export function withConstraint({ response_format: _, structured_outputs: structured, ...others }, { mode, value }, name = "answer") {
  const options = Object.fromEntries(Object.entries(structured ?? {}).filter(([key]) => !KINDS.includes(key)));
  const rest = Object.fromEntries(Object.entries(others).filter(([key]) => !OLDER.includes(key)));
  const constrains = mode === "choice" || mode === "regex" || mode === "grammar";
  const outputs = constrains ? { ...options, [mode]: value } : options;
  /** @type {Parameters} */
  const parameters = { ...rest, ...(Object.keys(outputs).length ? { structured_outputs: outputs } : {}) };
  if (mode === "json") parameters.response_format = { type: "json_object" };
  if (mode === "schema") parameters.response_format = { type: "json_schema", json_schema: { name, schema: value, strict: true } };
  return parameters;
}
