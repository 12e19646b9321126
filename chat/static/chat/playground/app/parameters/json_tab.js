// @ts-check
// The request as one object of text, without its messages. What is typed is taken over as long as all of it can be sent.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { t } from "../core/i18n.js";
import { wantedField } from "./focus.js";
import { form } from "./form_facts.js";
import { readRequest, writeRequest } from "./json_text.js";
import { same } from "./values.js";
import { markWrong, wrongFields } from "./validity.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { JsonEditor } from "./json_editor.js" */

/** @param {{open: Chat}} props */
export function JsonTab({ open }) {
  const [typed, setTyped] = useState("");
  const wrong = wrongFields(open).value.json;
  const { model, parameters } = open.settings.value;
  const schema = form.value?.schema;
  const read = readRequest(typed, schema);
  const isCurrent = read.value && same(read.value, { model, ...parameters });
  const text = wrong?.text ?? (isCurrent ? typed : writeRequest(model, parameters));
  const { problems } = readRequest(text, schema);
  const type = (/** @type {string} */ next) => {
    setTyped(next);
    const { value, problems: found } = readRequest(next, schema);
    if (!value) return markWrong(open, "json", { text: next, message: found[0].message });
    const { model: name, ...fields } = value;
    wrongFields(open).value = {};
    acts.changeSettings(open, { model: name, parameters: fields });
  };
  return html`<div class="json-tab">
    <p class="hint" id="json-help">${t("All that is sent beside the messages. Valid text is taken over as you type. Tab indents; Esc, then Tab leaves the text.")}</p>
    <${Editor} text=${text} onText=${type} />
    ${problems.length > 0 && html`<div class="json-problems" role="alert"><p class="problem">${t("Nothing of this is taken over:")}</p>
      <ul>${problems.slice(0, 5).map(({ message }) => html`<li key=${message} class="problem">${message}</li>`)}</ul></div>`}
    ${wrong && html`<button type="button" class="button button-small" onClick=${() => markWrong(open, "json")}>${t("Go back to what is set")}</button>`}
  </div>`;
}

/** The text in CodeMirror, or in a plain box until that is there. @param {{text: string, onText: (text: string) => void}} props */
function Editor({ text, onText }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const [editor, setEditor] = useState(/** @type {JsonEditor | null} */ (null));
  const latest = useRef({ text, onText });
  latest.current = { text, onText };
  useEffect(() => {
    let isGone = false;
    /** @type {JsonEditor | null} */
    let made = null;
    const make = async () => {
      const library = await import("../../../vendor/codemirror.js").catch(() => null); // the plain box does, too
      if (!library || isGone || !frame.current) return;
      const { makeEditor } = await import("./json_editor.js");
      if (isGone) return;
      const isFocused = frame.current.contains(document.activeElement);
      made = makeEditor(library, frame.current, latest.current.text, (next) => latest.current.onText(next));
      if (isFocused) made.focus();
      setEditor(made);
    };
    make();
    return () => {
      isGone = true;
      made?.destroy();
    };
  }, []);
  useLayoutEffect(() => editor?.show(text), [editor, text]);
  const isWanted = wantedField.value === "json";
  useEffect(() => {
    if (!isWanted) return;
    wantedField.value = "";
    if (editor) editor.focus();
    else frame.current?.querySelector("textarea")?.focus();
  }, [isWanted, editor]);
  const keepEscape = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation(); // it is for the editor, and stops no answer
    event.preventDefault();
  };
  return html`<div class="json-frame" onKeyDown=${keepEscape}>
    <div ref=${frame} class="json-editor">${!editor && html`<textarea class="input input-code" rows="14" spellcheck=${false} aria-label=${t("Request as JSON")} aria-describedby="json-help" value=${text}
      onInput=${(/** @type {any} */ event) => onText(event.target.value)}></textarea>`}</div>
  </div>`;
}
