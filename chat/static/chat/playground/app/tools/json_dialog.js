// @ts-check
// The short way to answers in JSON: a schema, or an example from which one is made. The editor of schemas (output.js) has the rest.
import { html, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { isObject, parse } from "../core/json.js";
import { Dialog } from "../view/controls.js";
import { JsonEditor } from "../view/json_editor.js";
import { closeDialog } from "../view/layers.js";
import { constraintOf, nameFrom, schemaName, withConstraint } from "./constraint.js";
import { schemaOf } from "./schema_of.js";
import { useServerCheck } from "./server_check.js";

/** @import { Chat } from "../core/chat.js" */

const EXAMPLE = { name: "Ada", age: 36 };
const TYPES = new Set(["object", "array", "string", "number", "integer", "boolean", "null"]);

/** Whether an object says what others must be. @param {any} value */
function isSchema(value) {
  if (!isObject(value)) return false;
  const hasType = value.type !== undefined && [value.type].flat().every((/** @type {any} */ type) => TYPES.has(type));
  return hasType || isObject(value.properties) || ["$schema", "$ref"].some((name) => typeof value[name] === "string") || ["anyOf", "oneOf", "allOf", "enum"].some((name) => Array.isArray(value[name]));
}

/** @param {{open: Chat, onDone: () => void}} props */
export function JsonDialog({ open, onDone }) {
  const { parameters } = open.settings.value;
  const { mode, value: present } = constraintOf(parameters);
  const kept = mode === "schema" ? present : app.readState("output")?.schema;
  const [text, setText] = useState(JSON.stringify(kept ?? EXAMPLE, null, 2));
  const [called, setCalled] = useState(schemaName(parameters));
  const { isWhole, value, problem } = parse(text);
  const isOne = isSchema(value);
  const schema = isWhole && (isOne ? value : schemaOf(value));
  const checked = useServerCheck(isWhole ? "json_schema" : "", schema);
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isWhole) return;
    closeDialog();
    app.writeState("output", { ...app.readState("output"), schema });
    acts.changeSettings(open, { parameters: withConstraint(parameters, { mode: "schema", value: schema }, nameFrom(called)) });
    onDone();
  };
  return html`<${Dialog} title=${t("Answers as JSON")} onClose=${closeDialog}><form class="form" onSubmit=${save}>
    <div class="field"><span class="field-title">${t("A JSON Schema, or an example of an answer")}</span>
      <${JsonEditor} label=${t("Schema or example as JSON")} text=${text} onText=${setText} isSelected=${true} />
      ${isWhole ? html`<p class="hint" role="status">${isOne ? t("This is a schema.") : t("This is an example: a schema with these names and types is made of it.")}</p>` : html`<p class="problem" role="alert">${t("This is not JSON: {problem}", { problem })}</p>`}
      ${checked?.problems.map(({ message, path }) => html`<p class="problem" key=${message}>${path && html`<code>${path}</code>`} ${message}</p>`)}</div>
    <label class="field"><span>${t("Name")}</span><input class="input input-code" id="json-name" value=${called} onInput=${(/** @type {any} */ event) => setCalled(event.target.value)} /></label>
    <div class="dialog-acts"><button type="button" class="button" onClick=${closeDialog}>${t("Cancel")}</button><button type="submit" class="button button-primary" disabled=${!isWhole}>${t("Save")}</button></div>
  </form><//>`;
}
