// @ts-check
// The properties of an object's schema as rows of a form. What a row has no place for is written as JSON and kept as it is.
import { html, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { parse } from "../core/json.js";
import { IconButton } from "../view/controls.js";
import { Icon } from "../view/icons.js";

const TYPES = ["string", "integer", "number", "boolean"];
const IN_ROW = new Set(["type", "description", "enum"]);

/** @param {any} schema */
const fitsRow = (schema) =>
  schema !== null && typeof schema === "object" && TYPES.includes(schema.type) && Object.keys(schema).every((name) => IN_ROW.has(name)) && (schema.enum === undefined || schema.type === "string");

/** @param {{schema: any, onChange: (schema: any) => void}} props */
export function SchemaRows({ schema, onChange }) {
  const properties = Object.entries(schema?.properties ?? {});
  const required = schema?.required ?? [];
  const put = (/** @type {[string, any][]} */ rows, /** @type {string[]} */ names) => {
    const { required: _, ...others } = schema ?? {};
    onChange({ type: "object", ...others, properties: Object.fromEntries(rows), ...(names.length ? { required: names } : {}) });
  };
  const change = (/** @type {number} */ at, /** @type {any} */ value) => put(properties.map((row, other) => (other === at ? [row[0], value] : row)), required);
  const rename = (/** @type {number} */ at, /** @type {string} */ name) => {
    if (!name || properties.some(([other], index) => other === name && index !== at)) return;
    put(properties.map((row, other) => (other === at ? [name, row[1]] : row)), required.map((/** @type {string} */ other) => (other === properties[at][0] ? name : other)));
  };
  const add = () => {
    let num = properties.length + 1;
    while (properties.some(([name]) => name === `parameter_${num}`)) num += 1;
    put([...properties, [`parameter_${num}`, { type: "string" }]], required);
  };
  const drop = (/** @type {string} */ name) => put(properties.filter(([other]) => other !== name), required.filter((/** @type {string} */ other) => other !== name));
  return html`<div class="schema-rows">
    ${properties.map(
      ([name, value], at) => html`<${Row} key=${at} name=${name} schema=${value} isRequired=${required.includes(name)} onRename=${(/** @type {string} */ to) => rename(at, to)} onDrop=${() => drop(name)}
        onChange=${(/** @type {any} */ to) => change(at, to)} onRequire=${(/** @type {boolean} */ is) => put(properties, is ? [...required, name] : required.filter((/** @type {string} */ other) => other !== name))} />`,
    )}
    <button type="button" class="button button-small" onClick=${add}><${Icon} name="plus" size=${14} />${t("Add a parameter")}</button>
  </div>`;
}

/** @param {{name: string, schema: any, isRequired: boolean, onRename: (name: string) => void, onChange: (schema: any) => void, onRequire: (is: boolean) => void, onDrop: () => void}} props */
function Row({ name, schema, isRequired, onRename, onChange, onRequire, onDrop }) {
  const isPlain = fitsRow(schema);
  const [text, setText] = useState(JSON.stringify(schema, null, 2));
  const pick = (/** @type {string} */ type) => {
    const { description } = schema;
    const next = type === "json" ? { type: "object", ...(description ? { description } : {}), properties: {} } : { type, ...(description ? { description } : {}) };
    setText(JSON.stringify(next, null, 2));
    onChange(next);
  };
  const write = (/** @type {string} */ written) => {
    setText(written);
    const { isWhole, value } = parse(written);
    if (isWhole) onChange(value);
  };
  const part = (/** @type {string} */ field, /** @type {any} */ value) => {
    const { [field]: _, ...others } = schema;
    onChange(value === "" || value?.length === 0 ? others : { ...others, [field]: value });
  };
  return html`<fieldset class="schema-row"><legend class="visually-hidden">${name}</legend>
    <input class="input input-code" aria-label=${t("Name of the parameter")} value=${name} onChange=${(/** @type {any} */ event) => onRename(event.target.value.trim())} />
    <select class="input" aria-label=${t("Type of {name}", { name })} value=${isPlain ? schema.type : "json"} onChange=${(/** @type {any} */ event) => pick(event.target.value)}>
      ${TYPES.map((type) => html`<option value=${type}>${type}</option>`)}<option value="json">${t("as JSON")}</option></select>
    <label class="schema-required"><input type="checkbox" checked=${isRequired} onChange=${(/** @type {any} */ event) => onRequire(event.target.checked)} />${t("required")}</label>
    <${IconButton} icon="trash" size=${16} label=${t("Remove {name}", { name })} onClick=${onDrop} />
    ${isPlain
      ? html`<input class="input schema-wide" aria-label=${t("Description of {name}", { name })} placeholder=${t("Description")} value=${schema.description ?? ""} onInput=${(/** @type {any} */ event) => part("description", event.target.value)} />
          ${schema.type === "string" && html`<input class="input schema-wide" aria-label=${t("Values of {name}", { name })} placeholder=${t("Only these values, with commas between: c, f")} value=${(schema.enum ?? []).join(", ")}
            onChange=${(/** @type {any} */ event) => part("enum", event.target.value.split(",").map((/** @type {string} */ value) => value.trim()).filter(Boolean))} />`}`
      : html`<textarea class="input input-code schema-wide" aria-label=${t("Schema of {name}", { name })} rows="5" spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => write(event.target.value)}></textarea>
          ${!parse(text).isWhole && html`<p class="problem schema-wide">${parse(text).problem}</p>`}`}
  </fieldset>`;
}
