// @ts-check
// The controls of fields. Each gets the value that is set, and says what is typed; what is empty is not sent.
import { html, useState } from "../../../vendor/preact.js";
import { number, t } from "../core/i18n.js";
import { isSame } from "../core/json.js";
import { IconButton } from "../view/controls.js";
import { check } from "./value_problems.js";
import { kindOf, listItem, readItem, readText, sliderOf, writeItem, writeText } from "./values.js";

/** @import { FieldFacts } from "./form_facts.js" */
/** @import { Wrong } from "./validity.js" */
/** @import { ModelFacts } from "../core/types.js" */

/**
 * @typedef {object} InputProps
 * @property {string} id of the control, for its label
 * @property {string} name
 * @property {FieldFacts} facts
 * @property {any} value that is set, undefined for none
 * @property {string | undefined} wrong text that cannot be taken
 * @property {any} fallback what the model takes if nothing is set, undefined if unknown
 * @property {ModelFacts | undefined} model
 * @property {string} described ids of its help and problem
 * @property {boolean} isWrong
 * @property {(text: string) => void} onText
 * @property {(value: any) => void} onValue
 * @property {(wrong: Wrong) => void} onWrong
 */

/** @param {any} event @returns {string} */
const textOf = (event) => event.target.value;

/** The text that is shown: what was typed, as long as it says what is set. @param {InputProps} props @returns {[string, (text: string) => void]} */
function useTyped({ value, wrong, facts, onText }) {
  const [typed, setTyped] = useState("");
  const type = (/** @type {string} */ text) => {
    setTyped(text);
    onText(text);
  };
  const read = readText(typed, facts);
  const isCurrent = !read.problem && isSame(read.value, value);
  return [wrong ?? (isCurrent ? typed : writeText(value, facts)), type];
}

/** @param {InputProps} props */
const common = ({ id, described, isWrong }) => ({ id, "aria-describedby": described || undefined, "aria-invalid": isWrong || undefined });

/** What stands in an empty control. @param {InputProps} props */
function placeholder({ name, fallback }) {
  if (fallback !== undefined && fallback !== null) return typeof fallback === "object" ? JSON.stringify(fallback) : String(fallback);
  return /^max_(completion_)?tokens$/.test(name) ? t("rest of the context") : t("not set");
}

/** @param {InputProps} props */
function NumberInput(props) {
  const [text, type] = useTyped(props);
  const { schema } = props.facts;
  const isPositive = (schema.minimum ?? schema.exclusiveMinimum ?? -1) >= 0;
  return html`<input ...${common(props)} class="input param-number" type="text" inputmode=${!isPositive ? "text" : schema.type === "integer" ? "numeric" : "decimal"}
    autocomplete="off" placeholder=${placeholder(props)} value=${text} onInput=${(/** @type {Event} */ event) => type(textOf(event))} />`;
}

/** A slider for a number that has two bounds. Unset, it stands at the default. @param {InputProps} props */
export function Slider({ id, name, facts, value, fallback, model, onValue }) {
  const slider = sliderOf(name, facts.schema, model);
  if (!slider) return null;
  const { min, max, step, low, high } = slider;
  const rest = /^max_/.test(name) ? high : low;
  const at = value ?? fallback ?? rest;
  const move = (/** @type {Event} */ event) => onValue(Math.min(high, Math.max(low, Number(textOf(event)))));
  return html`<input id=${`${id}-range`} class=${`param-slider ${value === undefined ? "is-default" : ""}`} type="range" min=${min} max=${max} step=${step} value=${at}
    aria-label=${t("{field}, slider", { field: facts.title })} aria-valuetext=${value === undefined ? t("{value}, the default", { value: fallback ?? placeholderOfRest(name, at) }) : number(at)}
    onInput=${move} />`;
}

/** @param {string} name @param {number} at */
const placeholderOfRest = (name, at) => (/^max_/.test(name) ? t("rest of the context") : String(at));

/** Not set, on or off. @param {InputProps} props */
function SwitchInput({ id, facts, value, fallback, described, onValue }) {
  const states = [
    { title: fallback === undefined ? t("Default") : fallback ? t("Default: on") : t("Default: off"), state: undefined },
    { title: t("On"), state: true },
    { title: t("Off"), state: false },
  ];
  return html`<div id=${id} class="segments param-switch" role="group" aria-label=${facts.title} aria-describedby=${described || undefined}>
    ${states.map(({ title, state }) => html`<button type="button" key=${title} class="segment" aria-pressed=${(value ?? undefined) === state} onClick=${() => onValue(state)}>${title}</button>`)}
  </div>`;
}

/** @param {InputProps} props */
function ChoiceInput(props) {
  const { facts, value, fallback, onValue } = props;
  const unset = fallback === undefined ? t("Not set") : t("Default: {value}", { value: String(fallback) });
  return html`<select ...${common(props)} class="input" value=${value ?? ""} onChange=${(/** @type {Event} */ event) => onValue(textOf(event) || undefined)}>
    <option value="">${unset}</option>${facts.schema.enum.map((/** @type {string} */ word) => html`<option key=${word} value=${word}>${word}</option>`)}
  </select>`;
}

/** @param {InputProps} props */
function LineInput(props) {
  const [text, type] = useTyped(props);
  return html`<input ...${common(props)} class="input" type="text" autocomplete="off" spellcheck=${false} placeholder=${placeholder(props)} value=${text}
    onInput=${(/** @type {Event} */ event) => type(textOf(event))} />`;
}

/** A longer text, or JSON. @param {InputProps} props */
function AreaInput(props) {
  const [text, type] = useTyped(props);
  const rows = Math.min(12, Math.max(2, text.split("\n").length));
  return html`<textarea ...${common(props)} class="input input-code" rows=${rows} spellcheck=${false} autocapitalize="off" placeholder=${jsonPlaceholder(props)} value=${text}
    onInput=${(/** @type {Event} */ event) => type(textOf(event))}></textarea>`;
}

/** @param {InputProps} props */
function jsonPlaceholder(props) {
  const { schema } = props.facts;
  if (props.fallback !== undefined || kindOf(schema) !== "json") return placeholder(props);
  const words = schema.oneOf?.find((/** @type {any} */ one) => one.enum)?.enum;
  const example = schema.type === "array" ? "[…]" : "{…}";
  return words ? `${words.join(", ")}, ${example}` : example;
}

/** A list of texts or numbers, one chip each. @param {InputProps} props */
function ListInput(props) {
  const { facts, value, wrong, onWrong, onValue } = props;
  const [typed, setTyped] = useState("");
  const item = listItem(facts.schema) ?? {};
  const isNumber = item.type === "integer";
  const items = value === undefined || value === null ? [] : [value].flat();
  const put = (/** @type {any[]} */ all) => onValue(all.length ? all : undefined);
  const add = (/** @type {string} */ text) => {
    const parts = isNumber ? text.split(/[\s,]+/).filter(Boolean) : [text];
    const all = [...items, ...parts.filter(Boolean).map((part) => readItem(part, item))];
    const [problem] = all.length > items.length ? check(all, facts.schema, facts.title) : [];
    if (problem) return onWrong({ text, message: problem.message });
    setTyped("");
    if (all.length > items.length) put(all);
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    const text = wrong ?? typed;
    const ends = event.key === "Enter" && !event.isComposing && !event.ctrlKey && !event.metaKey;
    if (ends) add(text);
    else if (event.key === "Backspace" && text === "" && items.length && !event.repeat) put(items.slice(0, -1));
    else return;
    event.preventDefault();
  };
  return html`<div class="param-list">
    ${items.length > 0 && html`<ul class="chips" aria-label=${facts.title}>${items.map((one, at) => html`<li key=${at} class="chip"><code>${writeItem(one)}</code>
      <${IconButton} icon="close" size=${14} label=${t("Remove {name}", { name: writeItem(one) })} onClick=${() => put(items.filter((_, other) => other !== at))} /></li>`)}</ul>`}
    <input ...${common(props)} class="input" type="text" autocomplete="off" spellcheck=${false} value=${wrong ?? typed}
      placeholder=${isNumber ? t("Type numbers, then Enter") : t("Type a text, then Enter; \\n is a line break")}
      onInput=${(/** @type {Event} */ event) => (setTyped(textOf(event)), wrong !== undefined && put(items))} onKeyDown=${key} onBlur=${() => add(wrong ?? typed)} />
  </div>`;
}

/** The control of a field. @param {InputProps} props */
export function Input(props) {
  const kind = kindOf(props.facts.schema);
  const control = { number: NumberInput, boolean: SwitchInput, choice: ChoiceInput, line: LineInput, text: AreaInput, json: AreaInput, list: ListInput }[kind];
  return html`<${control} ...${props} />`;
}
