// @ts-check
// The form that answers have: JSON, one of a few texts, or what an expression or a grammar admits.
import { html, useLayoutEffect, useSignal, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { number, t } from "../core/i18n.js";
import { isObject, parse } from "../core/json.js";
import { Dialog, Tabs } from "../view/controls.js";
import { JsonEditor } from "../view/json_editor.js";
import { closeDialog, openDialog } from "../view/layers.js";
import { constraintOf, nameFrom, schemaName, withConstraint } from "./constraint.js";
import { pretty } from "./pretty.js";
import { schemaOf } from "./schema_of.js";
import { SchemaRows } from "./schema_rows.js";
import { mismatch, useServerCheck } from "./server_check.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Constraint, Mode } from "./constraint.js" */
/** @import { Library } from "../view/json_editor.js" */
/** @import { Said } from "./schema_hints.js" */

const EXAMPLES = {
  Person: { type: "object", properties: { name: { type: "string" }, age: { type: "integer", minimum: 0 } }, required: ["name", "age"] },
  Sentiment: { type: "object", properties: { sentiment: { type: "string", enum: ["positive", "neutral", "negative"] }, reason: { type: "string" } }, required: ["sentiment", "reason"] },
  List: { type: "object", properties: { items: { type: "array", items: { type: "string" }, maxItems: 10 } }, required: ["items"] },
};
/** @type {Record<string, any>} */
const FIRST = { schema: EXAMPLES.Person, choice: ["yes", "no"], regex: "[0-9]{4}", grammar: 'root ::= "yes" | "no"' };

/** @param {{open: Chat}} props */
export function OutputEditor({ open }) {
  const { parameters } = open.settings.value;
  const { mode, value } = constraintOf(parameters);
  const modes = { off: t("Text, free"), json: t("JSON object"), schema: t("JSON schema"), choice: t("Choices"), regex: t("Regular expression"), grammar: t("Grammar"), other: t("As in the raw JSON") };
  const set = (/** @type {Constraint} */ constraint, /** @type {string} */ name = "answer") => {
    if (constraint.value !== undefined) app.writeState("output", { ...app.readState("output"), [constraint.mode]: constraint.value });
    acts.changeSettings(open, { parameters: withConstraint(parameters, constraint, name) });
  };
  const pick = (/** @type {Mode} */ next) => set({ mode: next, value: app.readState("output")?.[next] ?? FIRST[next] });
  return html`<div class="output-editor form">
    <label class="field"><span>${t("Form of the answer")}</span><select class="input" id="output-mode" value=${mode} onChange=${(/** @type {any} */ event) => pick(event.target.value)}>
      ${Object.entries(modes).filter(([id]) => id !== "other" || mode === "other").map(([id, title]) => html`<option value=${id}>${title}</option>`)}</select></label>
    ${mode === "json" && html`<p class="hint">${t("Any JSON object. Say in the prompt that you want JSON, and which.")}</p>`}
    ${mode === "schema" && html`<${SchemaSummary} open=${open} schema=${value} onSave=${(/** @type {any} */ schema, /** @type {string} */ name) => set({ mode: "schema", value: schema }, name)} />`}
    ${mode === "choice" && html`<${Choices} list=${value} onChange=${(/** @type {string[]} */ list) => set({ mode: "choice", value: list })} />`}
    ${(mode === "regex" || mode === "grammar") && html`<${Pattern} key=${mode} mode=${mode} text=${value} onChange=${(/** @type {string} */ text) => set({ mode, value: text })} />`}
  </div>`;
}

/** @param {{list: string[], onChange: (list: string[]) => void}} props */
function Choices({ list, onChange }) {
  const [text, setText] = useState(list.join("\n"));
  const lines = text.split("\n").filter(Boolean);
  const write = (/** @type {string} */ written) => {
    setText(written);
    onChange(written.split("\n").filter(Boolean));
  };
  return html`<label class="field"><span>${t("Choices, one a line")}</span><textarea class="input input-code" id="output-choice" rows="5" value=${text} onInput=${(/** @type {any} */ event) => write(event.target.value)}></textarea></label>
    ${lines.length === 0 && html`<p class="problem">${t("There must be at least one choice.")}</p>`}
    ${new Set(lines).size < lines.length && html`<p class="problem">${t("Two lines are the same.")}</p>`}`;
}

/** @param {{mode: "regex" | "grammar", text: string, onChange: (text: string) => void}} props */
function Pattern({ mode, text, onChange }) {
  const [sample, setSample] = useState("");
  const checked = useServerCheck(text ? mode : "", text, sample || undefined);
  const label = mode === "regex" ? t("The whole answer matches") : t("Grammar: EBNF with the rule root, or Lark");
  return html`<label class="field"><span>${label}</span><textarea class="input input-code" id=${`output-${mode}`} rows=${mode === "regex" ? 3 : 8} spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => onChange(event.target.value)}></textarea></label>
    ${!text && html`<p class="problem">${t("This must not be empty.")}</p>`}
    ${checked?.problems.map(({ message }) => html`<p class="problem" key=${message}>${message}</p>`)}
    <label class="field"><span>${t("Does this text match?")}</span><input class="input input-code" id="output-sample" value=${sample} onInput=${(/** @type {any} */ event) => setSample(event.target.value)} /></label>
    ${sample && typeof checked?.matches === "boolean" && html`<p class=${`verdict ${checked.matches ? "" : "is-wrong"}`} role="status">${checked.matches ? t("It matches.") : mismatch(checked, sample)}</p>`}`;
}

/** @param {{open: Chat, schema: any, onSave: (schema: any, name: string) => void}} props */
function SchemaSummary({ open, schema, onSave }) {
  const name = schemaName(open.settings.value.parameters);
  const names = Object.keys(schema?.properties ?? {});
  return html`<div class="schema-summary"><code>${name}</code><span class="hint">${names.length ? names.join(", ") : t("no properties")}</span>
    <button type="button" class="button button-small" id="schema-edit" onClick=${() => openDialog(() => html`<${SchemaDialog} schema=${schema} name=${name} onSave=${onSave} />`)}>${t("Edit the schema")}</button></div>`;
}

/** @param {{schema: any, name: string, onSave: (schema: any, name: string) => void}} props */
function SchemaDialog({ schema, name, onSave }) {
  const [text, setText] = useState(JSON.stringify(schema, null, 2));
  const [called, setCalled] = useState(name);
  const [tab, setTab] = useState("form");
  const [sample, setSample] = useState("");
  const { isWhole, value, problem } = parse(text);
  const isSchema = isObject(value);
  const checked = useServerCheck(isSchema ? "json_schema" : "", value);
  const said = useSignal(/** @type {Said[]} */ ([]));
  useLayoutEffect(() => void (said.value = checked?.problems ?? []), [checked]);
  const loadHints = async (/** @type {Library} */ library) => (await import("./schema_hints.js")).schemaHints(library, said);
  const numBytes = new TextEncoder().encode(text).length;
  const put = (/** @type {any} */ next) => setText(JSON.stringify(next, null, 2));
  const problems = isSchema ? [] : [isWhole ? t("A schema is a JSON object.") : t("This is not JSON: {problem}", { problem })];
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isSchema) return;
    closeDialog();
    onSave(value, nameFrom(called));
  };
  const take = parse(sample);
  return html`<${Dialog} title=${t("Schema of the answer")} class="is-wide" onClose=${closeDialog}><form class="form" onSubmit=${save}>
    <div class="schema-top"><label class="field"><span>${t("Name")}</span><input class="input input-code" value=${called} onInput=${(/** @type {any} */ event) => setCalled(event.target.value)} /></label>
      <label class="field"><span>${t("Begin from an example")}</span><select class="input" value="" onChange=${(/** @type {any} */ event) => put(/** @type {any} */ (EXAMPLES)[event.target.value])}>
        <option value="" disabled>${t("Choose …")}</option>${Object.keys(EXAMPLES).map((one) => html`<option value=${one}>${one}</option>`)}</select></label></div>
    <div class="schema-sides">
      <div class="field"><span class="field-title">${t("JSON Schema")} <span class="hint">${checked ? t("{n} of {max} bytes", { n: number(numBytes), max: number(checked.max_bytes) }) : t("{n} bytes", { n: number(numBytes) })}</span></span>
        <${JsonEditor} label=${t("Schema as JSON")} rows=${16} text=${text} onText=${setText} more=${loadHints} />
        ${problems.map((one) => html`<p class="problem" role="alert" key=${one}>${one}</p>`)}
        ${checked?.problems.map(({ message, path }) => html`<p class="problem" key=${message}>${path && html`<code>${path}</code>`} ${message}</p>`)}
        ${checked?.is_valid && html`<p class="verdict">${t("The server can hold answers to this schema.")}</p>`}</div>
      <div class="schema-side">
        <${Tabs} label=${t("Beside the schema")} tabs=${[{ id: "form", title: t("Form") }, { id: "sample", title: t("From JSON") }, { id: "example", title: t("Valid example") }]} current=${tab} onPick=${setTab} />
        ${tab === "form" && (isSchema ? html`<${SchemaRows} schema=${value} onChange=${put} />` : html`<p class="hint">${t("Mend the JSON to see its form.")}</p>`)}
        ${tab === "sample" && html`<label class="field"><span>${t("An answer as you want it")}</span><textarea class="input input-code" id="schema-sample" rows="8" spellcheck=${false} placeholder='{"name": "Ada", "age": 36}' value=${sample} onInput=${(/** @type {any} */ event) => setSample(event.target.value)}></textarea></label>
          ${sample.trim() && !take.isWhole && html`<p class="problem">${take.problem}</p>`}
          <button type="button" class="button button-small" disabled=${!take.isWhole} onClick=${() => (put(schemaOf(take.value)), setTab("form"))}>${t("Make a schema from this JSON")}</button>`}
        ${tab === "example" && (checked?.example != null ? html`<pre class="message-raw" tabindex="0">${pretty(JSON.stringify(checked.example))}</pre>` : html`<p class="hint">${t("An answer that satisfies the schema is shown here once the server has checked it.")}</p>`)}
      </div></div>
    <div class="dialog-acts"><button type="button" class="button" onClick=${closeDialog}>${t("Cancel")}</button><button type="submit" class="button button-primary" disabled=${!isSchema}>${t("Save schema")}</button></div>
  </form><//>`;
}
