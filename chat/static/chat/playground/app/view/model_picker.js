// @ts-check
import { html } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";

/** @import { Chat } from "../core/chat.js" */

/** @param {{open: Chat}} props */
export function ModelPicker({ open }) {
  const { model } = open.settings.value;
  const models = app.models.value;
  return html`<label class="model-picker"><span class="visually-hidden">${t("Model")}</span>
    <select id="model" value=${model} onChange=${(/** @type {any} */ event) => acts.changeSettings(open, { model: event.target.value })}>
      ${models.length === 0 ? html`<option value="">${t("No model is served")}</option>` : models.map(({ id }) => html`<option key=${id} value=${id}>${id}</option>`)}
    </select></label>`;
}
