// @ts-check
import { html, useEffect, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { IconButton, Menu, MenuAct } from "../view/controls.js";
import { Icon } from "../view/icons.js";
import { applyPreset, deletePreset, isChanged, loadPresets, presetOf, presets, savePreset, sharePreset, updatePreset } from "./presets.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Preset } from "./presets.js" */

/** @param {{open: Chat}} props */
export function PresetsMenu({ open }) {
  const [name, setName] = useState("");
  useEffect(() => {
    if (presets.value === null) loadPresets();
  }, []);
  const current = presetOf(open);
  const isOther = Boolean(current && isChanged(open, current));
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (name.trim() && (await savePreset(open, name.trim()))) setName("");
  };
  const title = current ? (isOther ? t("{name} (changed)", { name: current.name }) : current.name) : t("Presets");
  return html`<${Menu} class="presets" align="left" label=${t("Presets")} button=${html`<span class=${`presets-name ${isOther ? "is-changed" : ""}`}>${title}</span><${Icon} name="down" size=${16} />`}>
    ${presets.value?.length ? html`<ul class="presets-list">${presets.value.map((preset) => html`<${Row} key=${preset.id} open=${open} preset=${preset} isCurrent=${preset === current} />`)}</ul>` : html`<p class="hint presets-none">${t("A preset keeps model, system prompt and parameters under a name.")}</p>`}
    <hr />
    ${current?.is_own && isOther && html`<${MenuAct} icon="check" onClick=${() => updatePreset(open, current)}>${t("Update {name}", { name: current.name })}<//>`}
    <form class="presets-new" onSubmit=${save}>
      <input class="input" id="preset-name" aria-label=${t("Name of a new preset")} placeholder=${t("Save as …")} maxlength="100" autocomplete="off" value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      <button type="submit" class="button button-small" aria-disabled=${!name.trim()}>${t("Save")}</button>
    </form>
  <//>`;
}

/** @param {{open: Chat, preset: Preset, isCurrent: boolean}} props */
function Row({ open, preset, isCurrent }) {
  const { name, is_shared: isShared, is_own: isOwn, owner } = preset;
  const share = isShared ? t("Stop sharing {name} with the project", { name }) : t("Share {name} with the project", { name });
  return html`<li class="presets-row">
    <button type="button" data-act class="menu-act" aria-current=${isCurrent || undefined} onClick=${() => applyPreset(open, preset)}>
      <span class="presets-title">${name}<small>${isOwn ? isShared && t("shared with the project") : t("of {owner}", { owner })}</small></span>${isCurrent && html`<${Icon} name="check" size=${16} />`}</button>
    ${isOwn && html`<${IconButton} icon="share" size=${16} label=${share} pressed=${isShared} onClick=${() => sharePreset(preset, !isShared)} />
      <${IconButton} icon="trash" size=${16} label=${t("Delete {name}", { name })} onClick=${() => deletePreset(preset)} />`}
  </li>`;
}
