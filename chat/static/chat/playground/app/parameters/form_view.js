// @ts-check
import { html, useState } from "../../../vendor/preact.js";
import { plural, t } from "../core/i18n.js";
import { Icon } from "../view/icons.js";
import { Field } from "./field.js";
import { wantedField } from "./focus.js";
import { form, formProblem, loadForm } from "./form_facts.js";
import { SystemField } from "./system_field.js";
import { wrongFields } from "./validity.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { FieldFacts, FormFacts } from "./form_facts.js" */

/** The model is picked above the conversation, and the messages are the conversation. */
const NOT_SHOWN = new Set(["model", "messages"]);
/** These have tabs beside this one. */
const IN_TABS = new Set(["tools", "response_format", "structured_outputs"]);

/** @param {FormFacts} facts @param {string} name */
const isFirst = (facts, name) => facts.fields[name].is_common && !IN_TABS.has(name);

/** Every field of a request. @param {{open: Chat}} props */
export function ParametersForm({ open }) {
  const [search, setSearch] = useState("");
  const facts = form.value;
  // A field that is wanted is not hidden by what was looked for before.
  const words = wantedField.value ? [] : search.toLowerCase().split(/\s+/).filter(Boolean);
  return html`<form class="params" aria-label=${t("Parameters")} onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${SystemField} key=${open.id} open=${open} />
    ${facts && html`<div class="params-search"><${Icon} name="search" size=${16} />
      <input class="input" id="params-search" type="search" aria-label=${t("Find a field")} placeholder=${t("Find a field")} value=${search}
        onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} /></div>`}
    ${facts && (words.length ? html`<${Found} open=${open} facts=${facts} words=${words} />` : html`<${Groups} open=${open} facts=${facts} />`)}
    ${!facts && (formProblem.value ? html`<p class="problem" role="alert">${formProblem.value} <button type="button" class="button button-small" onClick=${loadForm}>${t("Try again")}</button></p>` : html`<p class="hint" role="status">${t("Loading the fields …")}</p>`)}
  </form>`;
}

/** @param {{open: Chat, facts: FormFacts}} props */
function Groups({ open, facts }) {
  const shown = facts.groups.flatMap(({ fields }) => fields).filter((name) => !NOT_SHOWN.has(name));
  return html`${shown.filter((name) => isFirst(facts, name)).map((name) => html`<${Field} key=${`${open.id} ${name}`} open=${open} name=${name} facts=${facts.fields[name]} />`)}
    ${facts.groups.map(({ name, title, fields }) => {
      const others = fields.filter((field) => !NOT_SHOWN.has(field) && !isFirst(facts, field));
      return others.length > 0 && html`<${Group} key=${name} open=${open} title=${title} names=${others} facts=${facts} />`;
    })}`;
}

/** @param {{open: Chat, title: string, names: string[], facts: FormFacts}} props */
function Group({ open, title, names, facts }) {
  const [isOpen, setOpen] = useState(false);
  const { parameters } = open.settings.value;
  const wrong = wrongFields(open).value;
  const changed = names.filter((name) => parameters[name] !== undefined || wrong[name]).length;
  const isShown = isOpen || names.includes(wantedField.value);
  if (isShown && !isOpen) setOpen(true);
  return html`<details class="params-group" open=${isShown} onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><${Icon} name="right" size=${16} /><span>${title}</span>${changed > 0 ? html`<span class="params-count">${plural(changed, "1 changed", "{n} changed")}</span>` : html`<span class="hint">${names.length}</span>`}</summary>
    ${isShown && html`<div class="params-fields">${names.map((name) => html`<${Field} key=${`${open.id} ${name}`} open=${open} name=${name} facts=${facts.fields[name]} />`)}</div>`}
  </details>`;
}

/** The fields whose name, title or help has every word. @param {{open: Chat, facts: FormFacts, words: string[]}} props */
function Found({ open, facts, words }) {
  const says = (/** @type {string} */ name, /** @type {FieldFacts} */ { title, help }) => `${name} ${title} ${help}`.toLowerCase();
  const found = Object.entries(facts.fields).filter(([name, field]) => !NOT_SHOWN.has(name) && words.every((word) => says(name, field).includes(word)));
  // Those that are named so come before those that mention it.
  /** @param {[string, FieldFacts]} entry */
  const rank = ([name, { title }]) => (words.every((word) => `${name} ${title}`.toLowerCase().includes(word)) ? 0 : 1);
  found.sort((one, other) => rank(one) - rank(other));
  return html`<p class="hint" role="status">${found.length ? plural(found.length, "1 field", "{n} fields") : t("No field is called so.")}</p>
    ${found.map(([name, field]) => html`<${Field} key=${`${open.id} ${name}`} open=${open} name=${name} facts=${field} />`)}`;
}
