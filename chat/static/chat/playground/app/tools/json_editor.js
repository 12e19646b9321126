// @ts-check
// A box for JSON: CodeMirror once it is loaded, with its errors by line; a plain text area until then, and where it cannot be loaded.
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";

/** @param {{label: string, value: string, onInput: (text: string) => void, rows?: number}} props */
export function JsonEditor({ label, value, onInput, rows = 12 }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const view = useRef(/** @type {import("../../../vendor/codemirror.js").EditorView | null} */ (null));
  const onChange = useRef(onInput);
  const [isReady, setReady] = useState(false);
  onChange.current = onInput;
  useEffect(() => {
    let isGone = false;
    import("../../../vendor/codemirror.js").then((library) => {
      if (isGone || !host.current) return;
      view.current = editor(library, host.current, label, value, (text) => onChange.current(text));
      setReady(true);
    }, () => undefined); // the text area stays
    return () => {
      isGone = true;
      view.current?.destroy();
    };
  }, []);
  useEffect(() => {
    const state = view.current?.state;
    if (state && state.doc.toString() !== value) view.current?.dispatch({ changes: { from: 0, to: state.doc.length, insert: value } });
  }, [value, isReady]);
  return html`<div class="json-editor"><div ref=${host} hidden=${!isReady}></div>
    ${!isReady && html`<textarea class="input input-code" aria-label=${label} rows=${rows} spellcheck=${false} value=${value} onInput=${(/** @type {any} */ event) => onInput(event.target.value)}></textarea>`}</div>`;
}

/** @param {typeof import("../../../vendor/codemirror.js")} library @param {HTMLElement} host @param {string} label @param {string} text @param {(text: string) => void} onInput */
function editor({ EditorState, EditorView, minimalSetup, json, jsonParseLinter, linter, lintGutter, lineNumbers, closeBrackets, HighlightStyle, syntaxHighlighting, tags }, host, label, text, onInput) {
  // Its styles go into a shadow root: the page's policy admits no inline ones.
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const look = EditorView.theme({
    "&": { maxHeight: "46dvh", minHeight: "150px", font: "13px/1.5 var(--mono)", color: "var(--text)" },
    ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)", minHeight: "150px" },
    ".cm-gutters": { background: "transparent", color: "var(--text-soft)", border: "0" },
    "&.cm-focused": { outline: "0" },
    ".cm-scroller": { overflow: "auto" },
  });
  const colours = HighlightStyle.define([
    { tag: tags.string, color: "var(--ok)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--accent)" },
    { tag: tags.propertyName, color: "var(--text)" },
  ]);
  const tell = EditorView.updateListener.of((update) => update.docChanged && onInput(update.state.doc.toString()));
  const extensions = [minimalSetup, lineNumbers(), json(), closeBrackets(), lintGutter(), linter(jsonParseLinter()), look, syntaxHighlighting(colours), tell, EditorView.lineWrapping,
    EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label })];
  return new EditorView({ root, parent: root, state: EditorState.create({ doc: text, extensions }) });
}
