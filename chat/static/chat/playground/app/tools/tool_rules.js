// @ts-check
// What holds of tool definitions, said as they are typed. The server checks schemas again.
import { t } from "../core/i18n.js";
import { isObject } from "../core/json.js";

const NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/** @param {any} tool @param {string[]} otherNames @returns {string[]} */
export function problemsOf(tool, otherNames) {
  const definition = tool?.function;
  if (!isObject(definition)) return [t('A tool is {"type": "function", "function": {"name": …}}.')];
  const problems = [];
  const { name, description, parameters } = definition;
  if (typeof name !== "string" || !NAME.test(name)) problems.push(t("A name has 1 to 64 letters, digits, _ and -."));
  else if (otherNames.includes(name)) problems.push(t("There is another tool {name}; names differ.", { name }));
  if (description !== undefined && typeof description !== "string") problems.push(t("A description is a text."));
  if (parameters !== undefined) problems.push(...schemaProblems(parameters));
  return problems;
}

/** @param {any} parameters */
function schemaProblems(parameters) {
  if (!isObject(parameters)) return [t("parameters is a JSON Schema: an object.")];
  const { type, properties, required } = parameters;
  if (type !== undefined && ![type].flat().includes("object")) return [t("parameters must admit an object: “type” is “object”.")];
  if (properties !== undefined && !isObject(properties)) return [t("properties is an object: names and their schemas.")];
  if (required !== undefined && !(Array.isArray(required) && required.every((name) => typeof name === "string"))) return [t("required is a list of names.")];
  return [];
}
