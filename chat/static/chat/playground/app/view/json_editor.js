// @ts-check
// A box for JSON: CodeMirror once it is loaded, with its errors where they are; a plain text area until then, and where it cannot be loaded.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";

/** @import { EditorView, Extension } from "../../../vendor/codemirror.js" */

/** @typedef {typeof import("../../../vendor/codemirror.js")} Library */
/** @typedef {{show: (text: string) => void, view: EditorView}} Editor */

/** Let the page do what keys stand for. It is told by an event, as it imports what shows editors. @param {string} keys */
const wasDone = (keys) => !document.dispatchEvent(new CustomEvent("keys-in-editor", { detail: keys, cancelable: true }));

/**
 * `described`: id of what says how it is used; `isSelected`: it has the focus, and its text is about to be typed over; `more`: loads what this text has beside any JSON, such as completion.
 * @param {{label: string, text: string, onText: (text: string) => void, rows?: number, described?: string, isSelected?: boolean, more?: (library: Library) => Promise<Extension[]>}} props
 */
export function JsonEditor({ label, text, onText, rows = 12, described, isSelected, more }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const [editor, setEditor] = useState(/** @type {Editor | null} */ (null));
  const latest = useRef({ text, onText });
  latest.current = { text, onText };
  const names = { "aria-label": label, ...(described ? { "aria-describedby": described } : {}) };
  useLayoutEffect(() => {
    if (isSelected) frame.current?.querySelector("textarea")?.select();
  }, []);
  useEffect(() => {
    let isGone = false;
    /** @type {Editor | undefined} */
    let made;
    const load = async () => {
      const library = await import("../../../vendor/codemirror.js");
      return { library, extensions: more ? await more(library) : [] };
    };
    const make = (/** @type {{library: Library, extensions: Extension[]}} */ { library, extensions }) => {
      if (isGone || !frame.current) return;
      const area = /** @type {HTMLTextAreaElement} */ (frame.current.querySelector("textarea"));
      const { selectionStart: anchor, selectionEnd: head } = area;
      const isFocused = document.activeElement === area;
      const attributes = library.EditorView.contentAttributes.of({ tabindex: "0", ...names });
      made = makeEditor(library, frame.current, latest.current.text, [...extensions, attributes], (next) => latest.current.onText(next));
      if (isFocused) made.view.focus();
      if (isFocused || isSelected) made.view.dispatch({ selection: { anchor, head } });
      setEditor(made);
    };
    load().then(make, () => undefined); // the text area stays
    return () => {
      isGone = true;
      made?.view.destroy();
    };
  }, []);
  useLayoutEffect(() => editor?.show(text), [editor, text]);
  return html`<div ref=${frame} class="json-editor">${!editor && html`<textarea class="input input-code" rows=${rows} spellcheck=${false} autofocus=${isSelected} ...${names} value=${text}
    onInput=${(/** @type {any} */ event) => onText(event.target.value)}></textarea>`}</div>`;
}

/** @param {Library} library @param {HTMLElement} parent @param {string} text @param {Extension[]} more @param {(text: string) => void} onText @returns {Editor} */
function makeEditor(library, parent, text, more, onText) {
  const { EditorView, Annotation, basicSetup, json, jsonParseLinter, keymap, linter, lintGutter } = library;
  const isOurs = Annotation.define();
  const tell = EditorView.updateListener.of((update) => {
    if (update.docChanged && !update.transactions.some((transaction) => transaction.annotation(isOurs))) onText(update.state.doc.toString());
  });
  // Else the editor begins a line with the first of these keys, which send from every other field, and takes the other for the end of a selection.
  const isUntouched = (/** @type {EditorView} */ { state, dom }) => state.doc.toString() === text && !dom.querySelector(".cm-panel");
  const keys = keymap.of([
    { key: "Mod-Enter", run: () => wasDone("Mod+Enter") },
    { key: "Escape", run: (view) => isUntouched(view) && wasClosed(view.dom.closest("dialog")) },
  ]);
  const extensions = [...more, keys, basicSetup, json(), lintGutter(), linter(jsonParseLinter(), { delay: 150 }), EditorView.lineWrapping, highlighting(library), tell];
  const view = new EditorView({ doc: text, parent, extensions });
  const show = (/** @type {string} */ next) => {
    if (next !== view.state.doc.toString()) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next }, annotations: isOurs.of(true) });
  };
  return { show, view };
}

/** Close a dialog as Esc does, if there is one. @param {HTMLDialogElement | null} dialog */
const wasClosed = (dialog) => dialog !== null && !dialog.dispatchEvent(new Event("cancel", { cancelable: true }));

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
