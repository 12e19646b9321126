// @ts-check
// Checks a value against our own schemas, and says in sentences what it must be. The server checks again.
import { number, t } from "../core/i18n.js";

/** @import { Schema } from "./form_facts.js" */

/** @typedef {{path: (string | number)[], message: string}} SchemaProblem */

const MAX = Number.MAX_SAFE_INTEGER;

/**
 * Return what is wrong with a value, in its order.
 * @param {any} value
 * @param {Schema} schema
 * @param {string} label what to call the value
 * @param {Schema} [root] where `$ref` leads
 * @param {(string | number)[]} [path]
 * @returns {SchemaProblem[]}
 */
export function check(value, schema, label, root = schema, path = []) {
  const here = resolved(schema, root);
  const options = here.oneOf ?? here.anyOf;
  if (options) return checkOptions(value, options, label, root, path);
  const message = hasType(value, here) ? limitProblem(value, here, label) : typeProblem(here, label);
  if (message) return [{ path, message }];
  if (Array.isArray(value)) return value.flatMap((item, at) => check(item, here.items ?? {}, `${label}[${at}]`, root, [...path, at]));
  return isObject(value) ? checkObject(value, here, label, root, path) : [];
}

/** @param {Schema | undefined} schema @param {Schema} root @returns {Schema} */
export function resolved(schema, root) {
  const name = schema?.$ref?.match(/^#\/\$defs\/(.+)$/)?.[1];
  return name ? root.$defs[name] : (schema ?? {});
}

/** @param {any} value @param {Schema[]} options @param {string} label @param {Schema} root @param {(string | number)[]} path @returns {SchemaProblem[]} */
function checkOptions(value, options, label, root, path) {
  const found = options.map((option) => check(value, option, label, root, path));
  if (found.some((problems) => problems.length === 0)) return [];
  // The option that is of the value's type is the one that is meant.
  const meant = options.findIndex((option) => hasType(value, resolved(option, root)));
  if (meant >= 0) return found[meant];
  const types = options.flatMap((option) => typesOf(resolved(option, root))).filter((type) => type !== "null");
  return [{ path, message: t("{name} must be {types}.", { name: label, types: [...new Set(types)].map(typeName).join(t(" or ")) }) }];
}

/** @param {Record<string, any>} value @param {Schema} schema @param {string} label @param {Schema} root @param {(string | number)[]} path @returns {SchemaProblem[]} */
function checkObject(value, schema, label, root, path) {
  const { properties = {}, required = [], additionalProperties: others = true, propertyNames, maxProperties } = schema;
  const nameOf = (/** @type {string} */ name) => (label ? `${label}.${name}` : name);
  const problems = required
    .filter((/** @type {string} */ name) => !(name in value))
    .map((/** @type {string} */ name) => ({ path, message: t("{name} is missing.", { name: nameOf(name) }) }));
  if (maxProperties !== undefined && Object.keys(value).length > maxProperties) {
    problems.push({ path, message: t("{name} must have at most {max} entries.", { name: label, max: number(maxProperties) }) });
  }
  for (const [name, item] of Object.entries(value)) {
    const known = Object.hasOwn(properties, name) ? properties[name] : others;
    const isNamed = (!propertyNames?.pattern || new RegExp(propertyNames.pattern).test(name)) && name.length <= (propertyNames?.maxLength ?? MAX);
    if (known === false) problems.push({ path: [...path, name], message: t("{name} is no field of {owner}.", { name: nameOf(name), owner: label || t("a request") }) });
    else if (!isNamed) problems.push({ path: [...path, name], message: t("{name} is no name that {owner} may have.", { name: name.slice(0, 64), owner: label }) });
    else if (known !== true) problems.push(...check(item, known, nameOf(name), root, [...path, name]));
  }
  return problems;
}

/** @param {any} value @returns {value is Record<string, any>} */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** @param {Schema} schema @returns {string[]} */
const typesOf = ({ type }) => (type === undefined ? [] : [type].flat());

/** @param {any} value @param {Schema} schema */
function hasType(value, schema) {
  const types = typesOf(schema);
  const own = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return types.length === 0 || types.includes(own) || (own === "number" && types.includes("integer") && Number.isInteger(value));
}

/** @param {any} value @param {Schema} schema @param {string} name */
function limitProblem(value, schema, name) {
  const { enum: words, not } = schema;
  if (words && !words.includes(value)) return enumProblem(words, name);
  if (not && "const" in not && value === not.const) return t("{name} must not be {value}.", { name, value: String(value) });
  if (typeof value === "number") return isWithin(value, schema) ? "" : numberProblem(schema, name);
  const length = typeof value === "string" ? [...value].length : Array.isArray(value) ? value.length : 0;
  const [min, max] = typeof value === "string" ? [schema.minLength, schema.maxLength] : [schema.minItems, schema.maxItems];
  if (length < (min ?? 0)) return t("{name} must not be empty.", { name });
  if (length <= (max ?? MAX)) return "";
  return typeof value === "string"
    ? t("{name} must have at most {max} characters; it has {n}.", { name, max: number(max), n: number(length) })
    : t("{name} must have at most {max} entries; it has {n}.", { name, max: number(max), n: number(length) });
}

/** @param {number} value @param {Schema} schema */
function isWithin(value, { minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity, ...schema }) {
  // Whole numbers beyond this would be sent as others than were typed.
  const isExact = !typesOf(schema).includes("integer") || Number.isSafeInteger(value);
  return isExact && Number.isFinite(value) && value >= minimum && value <= maximum && value > exclusiveMinimum && value < exclusiveMaximum;
}

/** @param {Schema} schema @param {string} name */
function typeProblem(schema, name) {
  const types = typesOf(schema).filter((type) => type !== "null");
  if (types.length === 1 && (types[0] === "number" || types[0] === "integer")) return numberProblem(schema, name);
  if (schema.enum) return enumProblem(schema.enum, name);
  return t("{name} must be {types}.", { name, types: types.map(typeName).join(t(" or ")) });
}

/** @param {any[]} words @param {string} name */
function enumProblem(words, name) {
  return t("{name} must be one of {words}.", { name, words: words.filter((word) => word !== null).join(", ") });
}

/** Say what a number must be. @param {Schema} schema @param {string} name */
function numberProblem({ type, minimum, maximum, exclusiveMinimum }, name) {
  const isWhole = [type].flat().includes("integer");
  const [min, max] = [minimum ?? (isWhole ? -MAX : undefined), maximum ?? (isWhole ? MAX : undefined)];
  const values = { name, min: String(min ?? exclusiveMinimum), max: String(max) };
  if (isWhole) return t("{name} must be a whole number from {min} to {max}.", values);
  if (exclusiveMinimum !== undefined) return max === undefined ? t("{name} must be a number above {min}.", values) : t("{name} must be a number above {min}, at most {max}.", values);
  return min === undefined || max === undefined ? t("{name} must be a number.", values) : t("{name} must be a number from {min} to {max}.", values);
}

/** @param {string} type */
function typeName(type) {
  if (type === "string") return t("text");
  if (type === "array") return t("a list");
  if (type === "object") return t("an object");
  if (type === "boolean") return t("true or false");
  return type === "integer" ? t("a whole number") : t("a number");
}
