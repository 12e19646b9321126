// @ts-check
// What is wrong with a value of a request, in sentences that say what it must be. The server checks again.
import { number, t } from "../core/i18n.js";
import { checkValue, pathText, typesOf } from "../core/schema_check.js";

/** @import { Failure, Path } from "../core/schema_check.js" */
/** @import { Schema } from "./form_facts.js" */

/** @typedef {{path: Path, message: string}} ValueProblem */

const MAX = Number.MAX_SAFE_INTEGER;

/**
 * Return what is wrong with a value.
 * @param {any} value
 * @param {Schema} schema
 * @param {string} label what to call the value
 * @param {Schema} [root] where `$ref` leads
 * @param {Path} [path]
 * @returns {ValueProblem[]}
 */
export function check(value, schema, label, root = schema, path = []) {
  // Whole numbers beyond what is safe would be sent as others than were typed.
  const { failures } = checkValue(value, schema, { root, isInteger: Number.isSafeInteger });
  const ranked = failures.flatMap((failure) => (failure.keyword === "anyOf" && failure.inner) || failure).sort((one, other) => rankOf(one) - rankOf(other));
  const told = ranked.map((failure) => ({ path: [...path, ...failure.path], message: sentence(failure, label) }));
  return [...new Map(told.map((problem) => [problem.message, problem])).values()];
}

/** A whole comes before its parts, a name before its value. @param {Failure} failure */
const rankOf = ({ path, keyword }) => 2 * path.length - (keyword === "propertyNames" ? 1 : 0);

/** @param {Failure} failure @param {string} label */
function sentence(failure, label) {
  const [name, owner] = [pathText(failure.path, label), pathText(failure.path.slice(0, -1), label)];
  return (SENTENCES[failure.keyword] ?? mustBe)(failure, name, owner);
}

/** @typedef {(failure: Failure, name: string, owner: string) => string} Sentence */

/** What a value must be, by its schema. @type {Sentence} */
function mustBe({ keyword, rule, schema }, name) {
  const types = (keyword === "type" ? [rule].flat() : typesOf(schema)).filter((type) => type !== "null");
  const words = schema.enum?.filter((/** @type {any} */ word) => word !== null);
  if (types.length === 1 && (types[0] === "number" || types[0] === "integer")) return numberSentence(schema, name);
  if (words) return t("{name} must be one of {words}.", { name, words: words.join(", ") });
  if (types.length === 0 || !BY_TYPE.has(keyword)) return t("{name} does not satisfy {keyword} of its schema.", { name, keyword });
  return t("{name} must be {types}.", { name, types: [...new Set(types)].map(typeName).join(t(" or ")) });
}

/** Rules whose sentence names the types that may be. */
const BY_TYPE = new Set(["type", "anyOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]);

/** @type {Record<string, Sentence>} */
const SENTENCES = {
  required: (_, name) => t("{name} is missing.", { name }),
  false: (_, name, owner) => t("{name} is no field of {owner}.", { name, owner: owner || t("a request") }),
  propertyNames: ({ path }, _, owner) => t("{name} is no name that {owner} may have.", { name: String(path.at(-1)).slice(0, 64), owner }),
  maxProperties: ({ rule }, name) => t("{name} must have at most {max} entries.", { name, max: number(rule) }),
  not: (failure, name, owner) => (failure.rule.const === undefined ? mustBe(failure, name, owner) : t("{name} must not be {value}.", { name, value: String(failure.rule.const) })),
  minLength: atLeast,
  minItems: atLeast,
  maxLength: ({ rule, value }, name) => t("{name} must have at most {max} characters; it has {n}.", { name, max: number(rule), n: number([...value].length) }),
  maxItems: ({ rule, value }, name) => t("{name} must have at most {max} entries; it has {n}.", { name, max: number(rule), n: number(value.length) }),
};

/** @type {Sentence} */
function atLeast(failure, name, owner) {
  return failure.rule === 1 ? t("{name} must not be empty.", { name }) : mustBe(failure, name, owner);
}

/** Say what a number must be. @param {Schema} schema @param {string} name */
function numberSentence({ type, minimum, maximum, exclusiveMinimum }, name) {
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
