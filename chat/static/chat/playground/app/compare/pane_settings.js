// @ts-check
// What one pane asks for: parameters and the system prompt.
import { html, useState } from "../../../vendor/preact.js";
import { number, t } from "../core/i18n.js";
import { objectFrom } from "../core/json.js";
import { changePane, copySettingsToAll, setParameter } from "./panes.js";

/** @import { Pane } from "./panes.js" */

const QUICK = [
  { name: "temperature", title: () => t("Temperature"), min: 0, step: "any" },
  { name: "max_tokens", title: () => t("Tokens at most"), min: 1, step: 1 },
];

/** @param {{pane: Pane}} props */
export function PaneSettings({ pane }) {
  const { system, parameters } = pane.chat.settings.value;
  const summary = Object.entries(parameters).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : JSON.stringify(value)}`);
  return html`<details class="pane-settings">
    <summary>${[...summary, ...(system ? [t("system prompt")] : [])].join(" · ") || t("Settings of the model")}</summary>
    <div class="pane-fields">
      <div class="pane-quick">${QUICK.map(
        ({ name, title, min, step }) => html`<label class="field" key=${name}><span>${title()}</span>
          <input class="input" type="number" inputmode="decimal" name=${name} min=${min} step=${step} placeholder=${t("as the model")} value=${parameters[name] ?? ""}
            onChange=${(/** @type {any} */ event) => event.target.reportValidity() && setParameter(pane, name, event.target.value === "" ? undefined : event.target.valueAsNumber)} /></label>`,
      )}</div>
      <label class="field"><span>${t("System prompt")}</span>
        <textarea class="input" name="system" rows="2" value=${system} onInput=${(/** @type {any} */ event) => changePane(pane, { system: event.target.value })}></textarea></label>
      <${MoreParameters} pane=${pane} />
      <button type="button" class="button button-small" onClick=${() => copySettingsToAll(pane)}>${t("Copy settings to all")}</button>
    </div>
  </details>`;
}

/** All parameters as one JSON object. @param {{pane: Pane}} props */
function MoreParameters({ pane }) {
  const { parameters } = pane.chat.settings.value;
  const [problem, setProblem] = useState("");
  const change = (/** @type {any} */ event) => {
    const read = objectFrom(event.target.value);
    setProblem(read ? "" : t('This must be one JSON object, such as {"temperature": 0}.'));
    if (read) changePane(pane, { parameters: read });
  };
  return html`<details class="pane-more"><summary>${t("More …")}</summary>
    <label class="field"><span>${t("Parameters as JSON")}</span>
      <textarea class="input input-code" name="parameters" rows="5" spellcheck=${false} aria-invalid=${problem !== ""} value=${JSON.stringify(parameters, null, 2)} onChange=${change}></textarea></label>
    <p class="problem" role="alert">${problem}</p>
  </details>`;
}
