// @ts-check
// The tools that the model may call: `parameters.tools`, those that are switched off, and named sets of them.
import { html, signal, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { withField } from "../core/requests.js";
import { IconButton, Menu, MenuAct } from "../view/controls.js";
import { Icon } from "../view/icons.js";
import { openDialog } from "../view/layers.js";
import { entriesOf, put } from "./offered.js";
import { isAutomatic, MAX_ROUNDS, replyFor, setAutomatic } from "./replies.js";
import { ImportDialog, ToolDialog } from "./tool_dialog.js";
import { problemsOf } from "./tool_rules.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Entry } from "./offered.js" */

/** Lists of tools by their names, for all chats. @type {import("../../../vendor/preact.js").Signal<Record<string, any[]>>} */
const sets = signal(app.readState("toolsets") ?? {});

const NEW = { type: "function", function: { name: "", parameters: { type: "object", properties: {} } } };

/** @param {{open: Chat}} props */
export function ToolsEditor({ open }) {
  const entries = entriesOf(open);
  const names = entries.map(({ tool }) => tool?.function?.name);
  const edit = (/** @type {number} */ at) => {
    const save = (/** @type {any} */ tool) => put(open, at < entries.length ? entries.map((entry, other) => (other === at ? { ...entry, tool } : entry)) : [...entries, { tool, isOn: true }]);
    openDialog(() => html`<${ToolDialog} tool=${entries[at]?.tool ?? NEW} otherNames=${names.filter((_, other) => other !== at)} onSave=${save} />`);
  };
  const bring = () => openDialog(() => html`<${ImportDialog} open=${open} />`);
  return html`<div class="tools-editor form">
    ${entries.length === 0 && html`<p class="hint">${t("Functions that the model may call. You answer its calls by hand or by saved replies; nothing is run.")}</p>`}
    ${entries.length > 0 && html`<ul class="tool-list" aria-label=${t("Tools")}>${entries.map((_, at) => html`<${ToolRow} key=${at} open=${open} entries=${entries} at=${at} names=${names} onEdit=${() => edit(at)} />`)}</ul>`}
    <div class="tool-acts"><button type="button" class="button button-small" id="tool-add" onClick=${() => edit(entries.length)}><${Icon} name="plus" size=${14} />${t("Add a tool")}</button>
      <button type="button" class="button button-small" id="tool-import" onClick=${bring}><${Icon} name="download" size=${14} />${t("Import")}</button></div>
    ${names.length > 0 && html`<${CallControls} open=${open} />`}
    <${ToolSets} open=${open} entries=${entries} />
  </div>`;
}

/** @param {{open: Chat, entries: Entry[], at: number, names: string[], onEdit: () => void}} props */
function ToolRow({ open, entries, at, names, onEdit }) {
  const { tool, isOn } = entries[at];
  const { name = "?", description = "" } = tool?.function ?? {};
  const problems = problemsOf(tool, names.filter((_, other) => other !== at));
  const change = (/** @type {boolean} */ is) => put(open, entries.map((entry, other) => (other === at ? { ...entry, isOn: is } : entry)));
  return html`<li class="tool-row"><input type="checkbox" role="switch" aria-label=${t("Offer {name}", { name })} checked=${isOn} onChange=${(/** @type {any} */ event) => change(event.target.checked)} />
    <span class="tool-text"><code>${name}</code>${replyFor(name) !== undefined && html`<span class="call-kind">${t("reply saved")}</span>`}${description && html`<span class="tool-description">${description}</span>`}
      ${problems.map((one) => html`<span class="problem" key=${one}>${one}</span>`)}</span>
    <${IconButton} icon="edit" size=${16} label=${t("Edit {name}", { name })} onClick=${onEdit} />
    <${IconButton} icon="trash" size=${16} label=${t("Remove {name}", { name })} onClick=${() => put(open, entries.filter((_, other) => other !== at))} /></li>`;
}

/** @param {{open: Chat}} props */
function CallControls({ open }) {
  const { parameters } = open.settings.value;
  const { tools = [], tool_choice: choice, parallel_tool_calls: parallel } = parameters;
  const set = (/** @type {string} */ name, /** @type {any} */ value) => acts.changeSettings(open, { parameters: withField(parameters, name, value) });
  const shown = typeof choice === "string" ? choice : choice?.function ? `function:${choice.function.name}` : choice ? "other" : "";
  const pick = (/** @type {string} */ value) => set("tool_choice", value.startsWith("function:") ? { type: "function", function: { name: value.slice(9) } } : value || undefined);
  return html`<label class="field"><span>${t("Which tool to call")}</span><select class="input" id="tool-choice" value=${shown} disabled=${tools.length === 0} onChange=${(/** @type {any} */ event) => pick(event.target.value)}>
      <option value="">${t("Default: the model decides")}</option><option value="auto">auto</option><option value="none">${t("none: no calls")}</option><option value="required">${t("required: at least one")}</option>
      ${tools.map((/** @type {any} */ { function: tool }) => html`<option value=${`function:${tool?.name}`}>${t("Only {name}", { name: tool?.name })}</option>`)}
      ${shown === "other" && html`<option value="other" disabled>${t("As in the raw JSON")}</option>`}</select></label>
    <label class="field"><span>${t("Calls at once")}</span><select class="input" id="parallel-calls" value=${parallel === undefined ? "" : String(parallel)} disabled=${tools.length === 0}
      onChange=${(/** @type {any} */ event) => set("parallel_tool_calls", event.target.value ? event.target.value === "true" : undefined)}>
      <option value="">${t("Default: several")}</option><option value="true">${t("Several")}</option><option value="false">${t("At most one")}</option></select></label>
    <label class="switch-line"><input type="checkbox" role="switch" checked=${isAutomatic.value} onChange=${(/** @type {any} */ event) => setAutomatic(event.target.checked)} /><span>${t("Answer by saved replies automatically")}</span>
      <span class="hint">${t("At most {n} times in a row.", { n: MAX_ROUNDS })}</span></label>`;
}

/** @param {{open: Chat, entries: Entry[]}} props */
function ToolSets({ open, entries }) {
  const [name, setName] = useState("");
  const keep = (/** @type {Record<string, any[]>} */ next) => {
    sets.value = next;
    app.writeState("toolsets", next);
  };
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    const given = name.trim();
    if (!given || entries.length === 0) return;
    keep({ ...sets.value, [given]: entries.map(({ tool }) => tool) });
    setName("");
  };
  const load = (/** @type {any[]} */ tools) => {
    const before = open.settings.value;
    put(open, tools.map((tool) => ({ tool, isOn: true })));
    if (entries.length) app.notice.value = { text: t("The tools of this chat were replaced."), act: t("Undo"), run: () => acts.changeSettings(open, { parameters: before.parameters, tools_off: before.tools_off }) };
  };
  const saved = Object.entries(sets.value);
  return html`<div class="field tool-sets"><span class="field-title">${t("Tool sets")}</span>
    ${saved.map(
      ([set, tools]) => html`<div class="tool-set" key=${set}><button type="button" class="button button-small" title=${t("Use this set")} onClick=${() => load(tools)}><span>${set}</span></button><span class="hint">${plural(tools.length, "one tool", "{n} tools")}</span>
        <${Menu} label=${t("More for {name}", { name: set })}><${MenuAct} icon="plus" onClick=${() => put(open, [...entries, ...tools.filter((tool) => !entries.some((entry) => entry.tool?.function?.name === tool?.function?.name)).map((tool) => ({ tool, isOn: true }))])}>${t("Add to the tools here")}<//>
          <${MenuAct} icon="trash" danger=${true} onClick=${() => keep(Object.fromEntries(saved.filter(([other]) => other !== set)))}>${t("Delete the set")}<//><//></div>`,
    )}
    <form class="tool-acts" onSubmit=${save}><input class="input" aria-label=${t("Name of the set")} placeholder=${t("Save these tools as …")} value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      <button type="submit" class="button button-small" disabled=${!name.trim() || entries.length === 0}>${t("Save")}</button></form></div>`;
}
