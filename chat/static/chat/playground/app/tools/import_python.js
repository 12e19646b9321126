// @ts-check
// Reads the signature of a Python function as the definition of a tool. It knows names, annotations, defaults and docstrings, and runs nothing;
// what it does not understand is named.
import { t } from "../core/i18n.js";

/** @typedef {{tools: any[], problems: string[]}} Imported */

const SIMPLE = new Map([["str", "string"], ["int", "integer"], ["float", "number"], ["bool", "boolean"], ["None", "null"], ["dict", "object"], ["Dict", "object"],
  ["list", "array"], ["List", "array"], ["tuple", "array"], ["set", "array"]]);
const CLOSES = new Map([["(", ")"], ["[", "]"], ["{", "}"]]);

/** @param {string} source @returns {Imported} */
export function fromPython(source) {
  const tools = [];
  /** @type {string[]} */
  const problems = [];
  for (const match of source.matchAll(/(?:^|\n)[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(/g)) {
    const begin = match.index + match[0].length;
    const end = closing(source, begin);
    if (end < 0) problems.push(t("{name}: the list of parameters does not end.", { name: match[1] }));
    else tools.push(toolOf(match[1], source.slice(begin, end), docOf(source.slice(end)), problems));
  }
  if (tools.length === 0 && problems.length === 0) problems.push(t("There is no Python function here: one begins with “def name(”."));
  return { tools, problems };
}

/** @param {string} name @param {string} list @param {string} doc @param {string[]} problems */
function toolOf(name, list, doc, problems) {
  /** @type {Record<string, any>} */
  const properties = {};
  const required = [];
  const notes = argumentNotes(doc);
  for (const part of split(list, ",")) {
    const text = part.replace(/(^|\n)\s*#[^\n]*/g, "").trim();
    if (!text || text === "*" || text === "/" || text === "self" || text === "cls") continue;
    if (text.startsWith("*")) {
      problems.push(t("{name}: {text} stands for any number of arguments and is left out.", { name, text }));
      continue;
    }
    const [declared, standard] = splitOnce(text, "=");
    const [argument, annotation] = splitOnce(declared, ":");
    const schema = annotation ? typed(annotation.trim(), `${name}.${argument.trim()}`, problems) : {};
    if (notes[argument.trim()] && !schema.description) schema.description = notes[argument.trim()];
    if (standard === undefined) required.push(argument.trim());
    else withDefault(schema, standard.trim());
    properties[argument.trim()] = schema;
  }
  const description = doc.split(/\n\s*(?:Args|Arguments|Parameters|Returns|Raises)\s*:?\s*\n/)[0].trim();
  const parameters = { type: "object", properties, ...(required.length ? { required } : {}) };
  return { type: "function", function: { name, ...(description ? { description } : {}), parameters } };
}

/** @param {string} text an annotation @param {string} where @param {string[]} problems @returns {any} */
function typed(text, where, problems) {
  const options = split(text, "|").map((part) => part.trim());
  if (options.length > 1) return union(options.map((option) => typed(option, where, problems)));
  const quoted = /^(["'])(.*)\1$/.exec(text);
  if (quoted) return typed(quoted[2], where, problems);
  const name = (/^[\w.]+/.exec(text)?.[0] ?? "").split(".").at(-1) ?? "";
  const inside = /\[([\s\S]*)\]$/.exec(text)?.[1];
  const parts = inside === undefined ? [] : split(inside, ",").map((part) => part.trim()).filter(Boolean);
  if (name === "Literal") return literals(parts, where, problems);
  if (name === "Optional") return union([typed(parts[0] ?? "", where, problems), { type: "null" }]);
  if (name === "Union") return union(parts.map((part) => typed(part, where, problems)));
  if (name === "Annotated") return annotated(parts, where, problems);
  if (name === "Any") return {};
  const type = SIMPLE.get(name);
  if (!type) {
    problems.push(t("{where}: the type {type} is not known here; say its schema in the form.", { where, type: text }));
    return {};
  }
  if (type === "array" && parts[0]) return { type, items: typed(parts[0], where, problems) };
  if (type === "object" && parts[1]) return { type, additionalProperties: typed(parts[1], where, problems) };
  return { type };
}

/** @param {any[]} schemas */
function union(schemas) {
  const isSimple = schemas.every((schema) => typeof schema.type === "string" && Object.keys(schema).length === 1);
  return isSimple ? { type: schemas.map(({ type }) => type) } : { anyOf: schemas };
}

/** @param {string[]} parts @param {string} where @param {string[]} problems */
function literals(parts, where, problems) {
  const values = parts.map(literal);
  if (values.includes(undefined)) problems.push(t("{where}: one of the values of Literal is not understood.", { where }));
  const known = values.filter((value) => value !== undefined);
  return known.every((value) => typeof value === "string") ? { type: "string", enum: known } : { enum: known };
}

/** @param {string[]} parts @param {string} where @param {string[]} problems */
function annotated(parts, where, problems) {
  const schema = typed(parts[0] ?? "", where, problems);
  const said = parts.slice(1).map((part) => literal(part) ?? /description\s*=\s*(["'])(.*?)\1/.exec(part)?.[2]).find((note) => typeof note === "string");
  return said ? { ...schema, description: said } : schema;
}

/** @param {any} schema @param {string} text */
function withDefault(schema, text) {
  const value = literal(text);
  if (value !== undefined && value !== null) schema.default = value;
}

/** A constant of Python; undefined for anything else. @param {string} text @returns {any} */
function literal(text) {
  if (/^-?\d[\d_]*(\.\d*)?(e-?\d+)?$/i.test(text)) return Number(text.replaceAll("_", ""));
  const named = { True: true, False: false, None: null }[text];
  if (named !== undefined) return named;
  const quoted = /^(["'])((?:\\.|(?!\1).)*)\1$/.exec(text);
  return quoted ? quoted[2].replace(/\\(.)/g, "$1") : undefined;
}

/** Where the bracket closes that was open before `at`. @param {string} text @param {number} at */
function closing(text, at) {
  let depth = 1;
  for (const [index, letter] of letters(text, at)) {
    if (CLOSES.has(letter)) depth += 1;
    else if ([...CLOSES.values()].includes(letter) && --depth === 0) return index;
  }
  return -1;
}

/** Split outside brackets and strings. @param {string} text @param {string} mark */
function split(text, mark) {
  const parts = [];
  let depth = 0;
  let begin = 0;
  for (const [index, letter] of letters(text, 0)) {
    if (CLOSES.has(letter)) depth += 1;
    else if ([...CLOSES.values()].includes(letter)) depth -= 1;
    else if (letter === mark && depth === 0) {
      parts.push(text.slice(begin, index));
      begin = index + 1;
    }
  }
  return [...parts, text.slice(begin)];
}

/** @param {string} text @param {string} mark @returns {[string, string | undefined]} */
function splitOnce(text, mark) {
  const [first, ...rest] = split(text, mark);
  return [first, rest.length ? rest.join(mark) : undefined];
}

/** The letters outside strings and comments. @param {string} text @param {number} at @returns {Generator<[number, string]>} */
function* letters(text, at) {
  for (let index = at; index < text.length; index += 1) {
    const letter = text[index];
    if (letter === "#") while (index + 1 < text.length && text[index + 1] !== "\n") index += 1;
    else if (letter === '"' || letter === "'") {
      for (index += 1; index < text.length && text[index] !== letter; index += 1) if (text[index] === "\\") index += 1;
    } else yield [index, letter];
  }
}

/** The docstring behind a signature. @param {string} text */
function docOf(text) {
  const found = /^\)\s*(?:->[^:]*(?:\[[^\]]*\])?[^:]*)?:\s*(?:#[^\n]*\n\s*)?[rRuU]?("""|'''|"|')([\s\S]*?)\1/.exec(text);
  return (found?.[2] ?? "").split("\n").map((line) => line.trim()).join("\n").trim();
}

/** What a docstring says of the arguments, in Google's or Sphinx's way. @param {string} doc */
function argumentNotes(doc) {
  /** @type {Record<string, string>} */
  const notes = {};
  const listed = /\n\s*(?:Args|Arguments|Parameters)\s*:\s*\n([\s\S]*?)(?:\n\s*\n|\n\s*(?:Returns|Raises)\s*:|$)/.exec(`\n${doc}`)?.[1] ?? "";
  for (const line of listed.matchAll(/^\s*(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$/gm)) notes[line[1]] = line[2].trim();
  for (const line of doc.matchAll(/:param\s+(?:\w+\s+)?(\w+)\s*:\s*(.+)/g)) notes[line[1]] = line[2].trim();
  return notes;
}
