// @ts-check
import { html, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { plural, t } from "../core/i18n.js";
import { isObject, parse } from "../core/json.js";
import { withField } from "../core/requests.js";
import { Dialog, Tabs } from "../view/controls.js";
import { JsonEditor } from "../view/json_editor.js";
import { closeDialog } from "../view/layers.js";
import { fromOpenApi } from "./import_openapi.js";
import { fromPython } from "./import_python.js";
import { entriesOf, put } from "./offered.js";
import { replyFor, saveReply } from "./replies.js";
import { SchemaRows } from "./schema_rows.js";
import { problemsOf } from "./tool_rules.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Entry } from "./offered.js" */

const EXAMPLE = `def get_weather(city: str, unit: Literal["c", "f"] = "c") -> str:
    """Tell the weather of a city."""`;

/** One tool, as a form or as JSON: both are the same object. @param {{tool: any, otherNames: string[], onSave: (tool: any) => void}} props */
export function ToolDialog({ tool, otherNames, onSave }) {
  const [tab, setTab] = useState("form");
  const [text, setText] = useState(JSON.stringify(tool, null, 2));
  const [reply, setReply] = useState(replyFor(tool.function.name) ?? "");
  const { isWhole, value, problem } = parse(text);
  const problems = isWhole ? problemsOf(value, otherNames) : [t("This is not JSON: {problem}", { problem })];
  const isForm = isWhole && value?.function && typeof value.function === "object";
  const put = (/** @type {object} */ fields) => setText(JSON.stringify({ ...value, function: { ...value.function, ...fields } }, null, 2));
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (problems.length) return;
    closeDialog();
    if (reply !== (replyFor(value.function.name) ?? "")) saveReply(value.function.name, reply);
    onSave(value);
  };
  return html`<${Dialog} title=${t("Tool")} onClose=${closeDialog}>
    <form class="form" onSubmit=${save}>
      <${Tabs} label=${t("How the tool is written")} tabs=${[{ id: "form", title: t("Form") }, { id: "json", title: t("JSON") }]} current=${tab} onPick=${setTab} />
      ${tab === "json" && html`<${JsonEditor} label=${t("Tool as JSON")} text=${text} onText=${setText} />`}
      ${tab === "form" && !isForm && html`<p class="hint">${t("Mend the JSON to see its form.")}</p>`}
      ${tab === "form" && isForm && html`
        <label class="field"><span>${t("Name")}</span><input class="input input-code" id="tool-name" value=${value.function.name} placeholder="get_weather" onInput=${(/** @type {any} */ event) => put({ name: event.target.value })} /></label>
        <label class="field"><span>${t("Description")}</span><textarea class="input" id="tool-description" rows="2" placeholder=${t("What it does, and when to call it")} value=${value.function.description ?? ""}
          onInput=${(/** @type {any} */ event) => put({ description: event.target.value || undefined })}></textarea></label>
        <div class="field"><span class="field-title">${t("Parameters")}</span><${SchemaRows} schema=${value.function.parameters} onChange=${(/** @type {any} */ parameters) => put({ parameters })} /></div>
        <label class="switch-line"><input type="checkbox" role="switch" checked=${value.function.strict === true} onChange=${(/** @type {any} */ event) => put({ strict: event.target.checked || undefined })} /><span>${t("Strict: hold arguments to the schema")}</span></label>
        <label class="field"><span>${t("Saved reply")}</span><textarea class="input input-code" id="tool-reply" rows="3" spellcheck=${false} placeholder='{"temp": 21, "city": "{{city}}"}' value=${reply} onInput=${(/** @type {any} */ event) => setReply(event.target.value)}></textarea>
          <span class="hint">${t("Answers calls in the conversation. {{name}} stands for an argument; nothing is run.")}</span></label>`}
      ${problems.map((one) => html`<p class="problem" role="alert" key=${one}>${one}</p>`)}
      <div class="dialog-acts"><button type="button" class="button" onClick=${closeDialog}>${t("Cancel")}</button>
        <button type="submit" class="button button-primary" disabled=${problems.length > 0}>${t("Save tool")}</button></div>
    </form>
  <//>`;
}

/** Definitions from what others have written. @param {{open: Chat, onDone?: () => void}} props */
export function ImportDialog({ open, onDone }) {
  const entries = entriesOf(open);
  const numOff = entries.filter(({ isOn }) => !isOn).length;
  const otherNames = entries.map(({ tool }) => tool?.function?.name);
  const { tool_choice: choice } = open.settings.value.parameters;
  const wasForced = choice === "required" || isObject(choice);
  const [text, setText] = useState("");
  const [isForced, setForced] = useState(wasForced);
  const { tools, problems } = text.trim() ? read(text) : { tools: [], problems: [] };
  const names = tools.map((tool) => tool?.function?.name);
  const wrong = tools.flatMap((tool, at) => problemsOf(tool, [...otherNames, ...names.slice(0, at)]));
  const offer = (/** @type {Entry[]} */ all) => {
    closeDialog();
    put(open, all);
    if (isForced !== wasForced) acts.changeSettings(open, { parameters: withField(open.settings.value.parameters, "tool_choice", isForced ? forced(all) : undefined) });
    onDone?.();
  };
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (tools.length > 0 && wrong.length === 0) offer([...entries, ...tools.map((tool) => ({ tool, isOn: true }))]);
  };
  return html`<${Dialog} title=${t("Import tools")} onClose=${closeDialog}><form class="form" onSubmit=${save}>
    <label class="field"><span>${t("Paste Python functions, an OpenAPI operation, or tools as JSON")}</span>
      <textarea class="input input-code" id="import-text" rows="10" autofocus spellcheck=${false} placeholder=${EXAMPLE} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea></label>
    ${tools.length > 0 && html`<p class="hint">${t("Found: {names}", { names: names.join(", ") })}</p>`}
    ${[...problems, ...wrong].map((one) => html`<p class="problem" key=${one}>${one}</p>`)}
    <label class="switch-line"><input type="checkbox" role="switch" id="import-forced" checked=${isForced} onChange=${(/** @type {any} */ event) => setForced(event.target.checked)} /><span>${t("The model must call a tool")}</span>
      <span class="hint">${t("After each result too, until you change it under Tools.")}</span></label>
    <div class="dialog-acts">
      ${numOff > 0 && html`<button type="button" class="button" id="import-offer" onClick=${() => offer(entries.map(({ tool }) => ({ tool, isOn: true })))}>${plural(numOff, "Offer the tool that is off", "Offer the {n} tools that are off")}</button>`}
      <button type="button" class="button" onClick=${closeDialog}>${t("Cancel")}</button>
      <button type="submit" class="button button-primary" disabled=${tools.length === 0 || wrong.length > 0}>${t("Add tools")}</button></div>
  </form><//>`;
}

/** The choice that makes a model call one of these; of one alone it is called once. @param {Entry[]} entries */
function forced(entries) {
  const [{ tool }, ...others] = entries.filter(({ isOn }) => isOn);
  return others.length ? "required" : { type: "function", function: { name: tool.function.name } };
}

/** @param {string} text @returns {import("./import_python.js").Imported} */
function read(text) {
  if (!/^\s*[[{]/.test(text)) return fromPython(text);
  const { isWhole, value } = parse(text);
  const list = [value].flat();
  if (isWhole && list.every((tool) => tool?.function)) return { tools: list, problems: [] };
  if (isWhole && list.every((tool) => tool?.name && !tool.in)) return { tools: list.map(({ type: _, ...tool }) => ({ type: "function", function: tool })), problems: [] };
  return fromOpenApi(text);
}
