// @ts-check
// What a JSON text has beside any JSON where its schema is known: problems are marked where they are, names and values are offered, Tab indents.
import { isObject } from "../core/json.js";
import { resolved } from "../core/schema_check.js";

/** @import { Completion, CompletionContext, CompletionResult, Diagnostic, EditorState, EditorView, Extension, ViewUpdate } from "../../../vendor/codemirror.js" */
/** @import { Library } from "./json_editor.js" */

/** @typedef {import("@lezer/common").SyntaxNode} Node */
/** A JSON Schema. @typedef {Record<string, any>} Schema */
/**
 * @typedef {object} Hints
 * @property {() => Schema | undefined} schema of the whole text
 * @property {(text: string) => {path: (string | number)[], message: string}[]} problemsOf of a text that is JSON
 * @property {(name: string | undefined) => Completion[] | null} [valuesFor] values that the schema does not have
 * @property {string[]} [leftOut] names that are not offered
 * @property {(update: ViewUpdate) => boolean} [isNew] whether there are other problems although the text is the same
 */

/** @param {Library} library @param {Hints} hints @returns {Extension[]} */
export function jsonHints(library, hints) {
  const { autocompletion, keymap, indentWithTab, linter } = library;
  const parse = library.jsonParseLinter(); // what is no JSON is marked by itself
  return [
    autocompletion({ override: [(context) => complete(library, context, hints)] }),
    keymap.of([indentWithTab]),
    linter((view) => (parse(view).length ? [] : diagnose(library, view, hints)), { delay: 150, ...(hints.isNew ? { needsRefresh: hints.isNew } : {}) }),
  ];
}

/** @param {Library} library @param {EditorView} view @param {Hints} hints @returns {Diagnostic[]} */
const diagnose = (library, view, { problemsOf }) => problemsOf(view.state.doc.toString()).map(({ path, message }) => ({ ...rangeOf(library, view.state, path), severity: "error", message }));

/** @param {Node} node */
const childrenOf = (node) => {
  const found = [];
  for (let child = node.firstChild; child; child = child.nextSibling) if (/^[A-Z]/.test(child.name)) found.push(child);
  return found;
};

/** Where a value stands; an entry of an object from its name on. @param {Library} library @param {EditorState} state @param {(string | number)[]} path */
function rangeOf({ ensureSyntaxTree, syntaxTree }, state, path) {
  let node = (ensureSyntaxTree(state, state.doc.length, 200) ?? syntaxTree(state)).topNode.firstChild;
  let range = { from: 0, to: Math.min(1, state.doc.length) };
  for (const step of path) {
    if (!node) break;
    const next = node.name === "Array" ? childrenOf(node)[Number(step)] : node.getChildren("Property").findLast((property) => nameOf(state, property) === step);
    if (!next) break;
    node = next.name === "Property" ? next.lastChild : next;
    range = { from: next.from, to: next.to };
  }
  return range;
}

/** @param {EditorState} state @param {Node} property */
function nameOf(state, property) {
  const name = property.getChild("PropertyName");
  try {
    return name ? JSON.parse(state.sliceDoc(name.from, name.to)) : undefined;
  } catch {
    return undefined;
  }
}

/** @param {Library} library @param {CompletionContext} context @param {Hints} hints @returns {CompletionResult | null} */
function complete({ syntaxTree }, context, { schema: rootOf, valuesFor, leftOut = [] }) {
  const root = rootOf();
  const word = context.matchBefore(/"?[\w-]*/);
  if (!root || !word || (word.from === word.to && !context.explicit)) return null;
  const node = syntaxTree(context.state).resolveInner(context.pos, -1);
  const property = enclosing(node, "Property");
  const before = context.state.sliceDoc(0, word.from).trimEnd();
  const schema = schemaAt(context.state, /[{,]$/.test(before) && property && !enclosing(node, "PropertyName") ? property.parent ?? node : node, root);
  const isValue = /[:[]$/.test(before);
  const name = property ? nameOf(context.state, property) : "";
  const options = isValue ? (valuesFor?.(name) ?? valuesOf(property ? schemaAt(context.state, property, root) : schema, root)) : namesOf(schema, root, context, leftOut);
  return options.length ? { from: word.from, options: options.map((option) => ({ ...option, apply: inserting(String(option.apply ?? option.label)) })), validFor: /^"?[\w-]*$/ } : null;
}

/** Put a text in the place of what is typed, and of the quotation mark that the editor has added. @param {string} text */
const inserting = (text) => (/** @type {EditorView} */ view, /** @type {Completion} */ _, /** @type {number} */ from, /** @type {number} */ to) => {
  const end = view.state.sliceDoc(to, to + 1) === '"' ? to + 1 : to;
  view.dispatch({ changes: { from, to: end, insert: text }, selection: { anchor: from + text.length }, userEvent: "input.complete" });
};

/** @param {Node | null} node @param {string} name @returns {Node | null} */
const enclosing = (node, name) => (!node || node.name === name ? node : enclosing(node.parent, name));

/** The schema of the object around a place; of a property, that of its value. @param {EditorState} state @param {Node} place @param {Schema} root @returns {Schema} */
function schemaAt(state, place, root) {
  const steps = [];
  // The name of a property that is just written belongs to the object around it.
  const isName = enclosing(place, "PropertyName") !== null;
  for (let node = isName ? (enclosing(place, "Property")?.parent ?? null) : place; node; node = node.parent) {
    if (node.name === "Property") steps.unshift(nameOf(state, node));
    if (node.name === "Array") steps.unshift(null);
  }
  return steps.reduce((schema, step) => stepInto(schema, step, root), root);
}

/** @param {Schema} schema @param {string | null | undefined} step @param {Schema} root @returns {Schema} */
function stepInto(schema, step, root) {
  const inner = (/** @type {Schema} */ one) => (step === null ? one.items : (one.properties?.[step ?? ""] ?? (isObject(one.additionalProperties) ? one.additionalProperties : undefined)));
  return resolved(branchesOf(schema, root).map(inner).find(Boolean), root);
}

/** A schema and what it may be instead. @param {Schema} schema @param {Schema} root @returns {Schema[]} */
const branchesOf = (schema, root) => [schema, ...(schema.oneOf ?? schema.anyOf ?? [])].map((one) => resolved(one, root));

/** @param {Schema} schema @param {Schema} root @param {CompletionContext} context @param {string[]} leftOut @returns {Completion[]} */
function namesOf(schema, root, { state, pos }, leftOut) {
  const properties = Object.assign({}, ...branchesOf(schema, root).map((one) => one.properties ?? {}));
  const isNamed = /^[\w-]*"?\s*:/.test(state.sliceDoc(pos, pos + 80));
  return Object.keys(properties)
    .filter((name) => !leftOut.includes(name))
    .map((name) => ({ label: `"${name}"`, displayLabel: name, apply: isNamed ? `"${name}"` : `"${name}": `, type: "property", info: properties[name].description || undefined }));
}

/** @param {Schema} schema @param {Schema} root @returns {Completion[]} */
function valuesOf(schema, root) {
  const words = branchesOf(schema, root).flatMap((one) => one.enum ?? ([one.type].flat().includes("boolean") ? [true, false] : []));
  return [...new Set(words)].filter((word) => word !== null).map((word) => ({ label: JSON.stringify(word), type: "enum" }));
}
