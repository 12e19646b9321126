// @ts-check
import { html, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { objectFrom } from "../core/json.js";
import { Dialog } from "./controls.js";
import { closeDialog } from "./layers.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

/** Ask again for one answer with another model or other parameters; those of the chat stay. @param {{open: Chat, turn: Turn}} props */
export function RegenerateDialog({ open, turn }) {
  const settings = open.settings.value;
  const [model, setModel] = useState(settings.model);
  const [fields, setFields] = useState(JSON.stringify(settings.parameters, null, 2));
  const [problem, setProblem] = useState("");
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    const parameters = objectFrom(fields);
    if (!parameters) return setProblem(t('This must be one JSON object, such as {"temperature": 0}.'));
    closeDialog();
    acts.regenerate(open, turn, { model, parameters });
  };
  return html`<${Dialog} title=${t("Regenerate with …")} onClose=${closeDialog}>
    <form class="form" onSubmit=${send}>
      <label class="field"><span>${t("Model")}</span>
        <select class="input" value=${model} onChange=${(/** @type {any} */ event) => setModel(event.target.value)}>${app.models.value.map(({ id }) => html`<option value=${id}>${id}</option>`)}</select></label>
      <label class="field"><span>${t("Parameters of this one answer")}</span>
        <textarea class="input input-code" rows="6" spellcheck=${false} value=${fields} onInput=${(/** @type {any} */ event) => setFields(event.target.value)}></textarea></label>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <div class="dialog-acts"><button class="button button-primary" type="submit">${t("Regenerate")}</button></div>
    </form>
  <//>`;
}
