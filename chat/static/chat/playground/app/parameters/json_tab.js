// @ts-check
// The request as one object of text, without its messages. What is typed is taken over as long as all of it can be sent.
import { html, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { t } from "../core/i18n.js";
import { isSame } from "../core/json.js";
import { JsonEditor } from "../view/json_editor.js";
import { useWanted } from "./field.js";
import { form } from "./form_facts.js";
import { readRequest, writeRequest } from "./json_text.js";
import { markWrong, wrongFields } from "./validity.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Library } from "../view/json_editor.js" */

const loadHints = async (/** @type {Library} */ library) => (await import("./request_hints.js")).requestHints(library);

/** @param {KeyboardEvent} event */
function keepEscape(event) {
  if (event.key !== "Escape") return;
  event.stopPropagation(); // it is for the editor, and stops no answer
  event.preventDefault();
}

/** @param {{open: Chat}} props */
export function JsonTab({ open }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useWanted("json", ref);
  const [typed, setTyped] = useState("");
  const wrong = wrongFields(open).value.json;
  const { model, parameters } = open.settings.value;
  const schema = form.value?.schema;
  const read = readRequest(typed, schema);
  const isCurrent = read.value && isSame(read.value, { model, ...parameters });
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
    <div ref=${ref} class="json-frame" onKeyDown=${keepEscape}><${JsonEditor} label=${t("Request as JSON")} described="json-help" rows=${14} text=${text} onText=${type} more=${loadHints} /></div>
    ${problems.length > 0 && html`<div class="json-problems" role="alert"><p class="problem">${t("Nothing of this is taken over:")}</p>
      <ul>${problems.slice(0, 5).map(({ message }) => html`<li key=${message} class="problem">${message}</li>`)}</ul></div>`}
    ${wrong && html`<button type="button" class="button button-small" onClick=${() => markWrong(open, "json")}>${t("Go back to what is set")}</button>`}
  </div>`;
}
