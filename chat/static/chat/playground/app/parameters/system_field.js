// @ts-check
import { html, useRef } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { useTokenCount } from "../core/loaded.js";
import { IconButton } from "../view/controls.js";
import { useWanted } from "./field.js";

/** @import { Chat } from "../core/chat.js" */

/** What the model is told first. @param {{open: Chat}} props */
export function SystemField({ open }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useWanted("system", ref);
  const { system, model } = open.settings.value;
  const own = app.modelOf(model)?.system_prompt;
  const tokens = useTokenCount(model, system);
  const change = (/** @type {string} */ text) => acts.changeSettings(open, { system: text });
  return html`<div ref=${ref} class=${`param ${system ? "is-set" : ""}`} data-field="system">
    <div class="param-head">
      <label class="param-title" for="field-system">${t("System prompt")}${system && html`<span class="param-mark"><span class="visually-hidden">${t("changed")}</span></span>`}</label>
      ${tokens !== null && html`<span class="hint" id="field-system-tokens">${plural(tokens, "1 token", "{n} tokens")}</span>`}
      ${system && html`<${IconButton} icon="again" size=${14} class="param-reset" label=${t("Reset {field}", { field: t("System prompt") })} onClick=${() => change("")} />`}
    </div>
    <textarea id="field-system" class="input param-system" rows=${Math.min(10, Math.max(3, system.split("\n").length))} value=${system}
      placeholder=${own || t("Tell the model how to answer")} aria-describedby=${own ? "field-system-help" : undefined} onInput=${(/** @type {any} */ event) => change(event.target.value)}></textarea>
    ${own && html`<p class="hint" id="field-system-help">${system ? t("Sent in place of the model's own.") : t("Empty: the model's own is used.")}</p>`}
  </div>`;
}
