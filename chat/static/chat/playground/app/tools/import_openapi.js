// @ts-check
// Reads operations of OpenAPI, as JSON, as definitions of tools: parameters and the JSON of the body become arguments.
import { t } from "../core/i18n.js";
import { parse } from "../core/json.js";
import { resolve } from "../core/schema_check.js";

/** @import { Imported } from "./import_python.js" */

const METHODS = ["get", "post", "put", "patch", "delete", "head", "options"];
const MAX_DEPTH = 12;

/** @param {string} text an operation, a path with its operations, or a whole document @returns {Imported} */
export function fromOpenApi(text) {
  const { isWhole, value, problem } = parse(text);
  if (!isWhole) return { tools: [], problems: [t("This is not JSON: {problem}", { problem })] };
  /** @type {string[]} */
  const problems = [];
  const found = operationsOf(value);
  const tools = found.map(({ name, operation, shared }) => toolOf(name, operation, shared, value, problems));
  if (tools.length === 0) problems.push(t("There is no OpenAPI operation here: one has operationId, parameters, requestBody or responses."));
  return { tools, problems };
}

/** @param {any} value @returns {{name: string, operation: any, shared: any[]}[]} */
function operationsOf(value) {
  if (!value || typeof value !== "object") return [];
  const paths = value.paths ?? Object.fromEntries(Object.entries(value).filter(([name]) => name.startsWith("/")));
  const list = Object.entries(paths).flatMap(([path, methods]) => inPath(path, methods));
  if (list.length) return list;
  const inOne = inPath("", value);
  if (inOne.length) return inOne;
  const isOperation = ["operationId", "parameters", "requestBody", "responses"].some((name) => name in value);
  return isOperation ? [{ name: "", operation: value, shared: [] }] : [];
}

/** @param {string} path @param {any} methods */
const inPath = (path, methods) =>
  METHODS.filter((method) => methods?.[method] && typeof methods[method] === "object").map((method) => ({ name: `${method}${path}`, operation: methods[method], shared: methods.parameters ?? [] }));

/** @param {string} fallback @param {any} operation @param {any[]} shared @param {any} root @param {string[]} problems */
function toolOf(fallback, operation, shared, root, problems) {
  const name = String(operation.operationId ?? fallback).replace(/[^a-zA-Z0-9_-]+/g, "_").replace(/^_+|_+$/g, "").slice(0, 64);
  if (!name) problems.push(t("The operation has no operationId; give the tool a name."));
  /** @type {Record<string, any>} */
  const properties = {};
  const required = new Set();
  for (const given of [...shared, ...(operation.parameters ?? [])]) {
    const parameter = inlined(given, root, problems, name);
    if (!parameter.name || parameter.in === "header" || parameter.in === "cookie") {
      problems.push(t("{name}: the parameter {parameter} ({place}) is left out.", { name, parameter: parameter.name ?? "?", place: parameter.in ?? "?" }));
      continue;
    }
    const { type, enum: values, format, default: standard } = parameter; // where OpenAPI 2 has them
    const schema = parameter.schema ?? JSON.parse(JSON.stringify({ type, enum: values, format, default: standard }));
    properties[parameter.name] = { ...schema, ...(parameter.description ? { description: parameter.description } : {}) };
    if (parameter.required) required.add(parameter.name);
  }
  takeBody(operation, root, problems, name, properties, required);
  const description = [operation.summary, operation.description].filter(Boolean).join("\n\n");
  const parameters = { type: "object", properties, ...(required.size ? { required: [...required] } : {}) };
  return { type: "function", function: { name, ...(description ? { description } : {}), parameters } };
}

/** @param {any} operation @param {any} root @param {string[]} problems @param {string} name @param {Record<string, any>} properties @param {Set<string>} required */
function takeBody(operation, root, problems, name, properties, required) {
  const body = inlined(operation.requestBody, root, problems, name);
  if (!body?.content) return;
  const type = Object.keys(body.content).find((kind) => kind.includes("json"));
  if (!type) return void problems.push(t("{name}: only a body of JSON becomes arguments, not {types}.", { name, types: Object.keys(body.content).join(", ") }));
  const schema = body.content[type].schema ?? {};
  if (schema.properties) {
    for (const [property, inner] of Object.entries(schema.properties)) {
      if (property in properties) problems.push(t("{name}: {property} is both a parameter and in the body; that of the body is taken.", { name, property }));
      properties[property] = inner;
    }
    for (const property of schema.required ?? []) required.add(property);
  } else {
    properties.body = schema;
    if (body.required) required.add("body");
  }
}

/** A part with its references put in place. @param {any} value @param {any} root @param {string[]} problems @param {string} name @param {number} [depth] @returns {any} */
function inlined(value, root, problems, name, depth = 0) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((item) => inlined(item, root, problems, name, depth + 1));
  if (typeof value.$ref === "string") {
    const target = depth < MAX_DEPTH ? resolve(root, value.$ref) : undefined;
    if (target !== undefined) return inlined(target, root, problems, name, depth + 1);
    const why = depth < MAX_DEPTH ? t("{name}: {ref} is not in the text; paste the whole document.", { name, ref: value.$ref }) : t("{name}: {ref} contains itself and is cut off.", { name, ref: value.$ref });
    if (!problems.includes(why)) problems.push(why);
    return {};
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, inlined(item, root, problems, name, depth + 1)]));
}
