// @ts-check
// CodeMirror for the request: problems are marked where they are, and names and values of our schema are offered.
import { t } from "../core/i18n.js";
import * as app from "../core/app.js";
import { resolved } from "../core/schema_check.js";
import { form } from "./form_facts.js";
import { readRequest } from "./json_text.js";

/** @import { Completion, CompletionContext, CompletionResult, Diagnostic, EditorState, EditorView } from "../../../vendor/codemirror.js" */
/** @import { Schema } from "./form_facts.js" */

/** @typedef {typeof import("../../../vendor/codemirror.js")} Library */
/** @typedef {import("@lezer/common").SyntaxNode} Node */
/** @typedef {{show: (text: string) => void, focus: () => void, destroy: () => void}} JsonEditor */

/** @param {Library} library @param {HTMLElement} parent @param {string} text @param {(text: string) => void} onText @returns {JsonEditor} */
export function makeEditor(library, parent, text, onText) {
  const { EditorView, Annotation, basicSetup, json, keymap, indentWithTab, linter, lintGutter, autocompletion } = library;
  const isOurs = Annotation.define();
  const parse = library.jsonParseLinter();
  const view = new EditorView({
    doc: text,
    parent,
    extensions: [
      autocompletion({ override: [(context) => complete(library, context)] }),
      ...[basicSetup, json(), keymap.of([indentWithTab]), lintGutter(), EditorView.lineWrapping, highlighting(library)],
      linter((shown) => (parse(shown).length ? parse(shown) : diagnose(library, shown)), { delay: 150 }),
      EditorView.contentAttributes.of({ tabindex: "0", "aria-label": t("Request as JSON"), "aria-describedby": "json-help" }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged && !update.transactions.some((transaction) => transaction.annotation(isOurs))) onText(update.state.doc.toString());
      }),
    ],
  });
  return {
    show: (next) => {
      if (next !== view.state.doc.toString()) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next }, annotations: isOurs.of(true) });
    },
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}

/** Colours of the page's theme. @param {Library} library */
function highlighting({ HighlightStyle, syntaxHighlighting, tags }) {
  return syntaxHighlighting(
    HighlightStyle.define([
      { tag: tags.propertyName, color: "var(--accent)" },
      { tag: tags.string, color: "var(--ok)" },
      { tag: [tags.number, tags.bool, tags.null], color: "var(--text)" },
    ]),
  );
}

/** @param {Library} library @param {EditorView} view @returns {Diagnostic[]} */
function diagnose(library, view) {
  const { problems } = readRequest(view.state.doc.toString(), form.value?.schema);
  return problems.map(({ path, message }) => ({ ...rangeOf(library, view.state, path), severity: "error", message }));
}

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
    const next = typeof step === "number" ? childrenOf(node)[step] : node.getChildren("Property").findLast((property) => nameOf(state, property) === step);
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

/** @param {Library} library @param {CompletionContext} context @returns {CompletionResult | null} */
function complete({ syntaxTree }, context) {
  const root = form.value?.schema;
  const word = context.matchBefore(/"?[\w-]*/);
  if (!root || !word || (word.from === word.to && !context.explicit)) return null;
  const node = syntaxTree(context.state).resolveInner(context.pos, -1);
  const property = enclosing(node, "Property");
  const before = context.state.sliceDoc(0, word.from).trimEnd();
  const schema = schemaAt(context.state, /[{,]$/.test(before) && property && !enclosing(node, "PropertyName") ? property.parent ?? node : node, root);
  const isValue = /[:[]$/.test(before);
  const options = isValue ? valuesOf(property ? schemaAt(context.state, property, root) : schema, property ? nameOf(context.state, property) : "") : namesOf(schema, context);
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
  const options = [schema, ...(schema.oneOf ?? schema.anyOf ?? [])].map((one) => resolved(one, root));
  const found = options.find((one) => (step === null ? one.items : one.properties?.[step ?? ""]));
  return resolved(step === null ? found?.items : found?.properties?.[step ?? ""], root);
}

/** @param {Schema} schema @param {CompletionContext} context @returns {Completion[]} */
function namesOf(schema, { state, pos }) {
  const properties = Object.assign({}, ...[schema, ...(schema.oneOf ?? [])].map((one) => one.properties ?? {}));
  const isNamed = /^[\w-]*"?\s*:/.test(state.sliceDoc(pos, pos + 80));
  return Object.keys(properties)
    .filter((name) => name !== "messages")
    .map((name) => ({ label: `"${name}"`, displayLabel: name, apply: isNamed ? `"${name}"` : `"${name}": `, type: "property", info: properties[name].description || undefined }));
}

/** @param {Schema} schema @param {string} name @returns {Completion[]} */
function valuesOf(schema, name) {
  if (name === "model") return app.models.value.map(({ id }) => ({ label: JSON.stringify(id), type: "text" }));
  const options = [schema, ...(schema.oneOf ?? schema.anyOf ?? [])];
  const words = options.flatMap((one) => one.enum ?? ([one.type].flat().includes("boolean") ? [true, false] : []));
  return [...new Set(words)].filter((word) => word !== null).map((word) => ({ label: JSON.stringify(word), type: "enum" }));
}
