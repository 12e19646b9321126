// @ts-check
import { html, useEffect, useRef } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { IconButton } from "../view/controls.js";
import { panelTab } from "../view/layers.js";
import { wantedField } from "./focus.js";
import { Input, Slider } from "./inputs.js";
import { defaultOf, kindOf, sliderOf } from "./values.js";
import { markWrong, problemOf, setField, typeField, wrongFields } from "./validity.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { FieldFacts } from "./form_facts.js" */

/** Fields that have a tab of their own. @type {Record<string, string>} */
const TAB_OF = { tools: "tools", response_format: "output", structured_outputs: "output" };

/** Focus what is in the element when its field is wanted. @param {string} name @param {import("../../../vendor/preact.js").RefObject<HTMLElement | null>} ref */
export function useWanted(name, ref) {
  const wanted = wantedField.value === name;
  useEffect(() => {
    if (!wanted) return;
    wantedField.value = "";
    const control = /** @type {HTMLElement | null} */ (ref.current?.querySelector("textarea, .cm-content, select, input:not([type=range]), .segment, .param-link"));
    control?.focus();
    ref.current?.scrollIntoView({ block: "center" });
  }, [wanted]);
}

/** A field of the request: its name, its control, what it is for, and what is wrong with it. @param {{open: Chat, name: string, facts: FieldFacts}} props */
export function Field({ open, name, facts }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useWanted(name, ref);
  const { model: modelName, parameters } = open.settings.value;
  const model = app.modelOf(modelName);
  const wrong = wrongFields(open).value[name]?.text;
  const problem = problemOf(open, name, facts);
  const value = parameters[name];
  const isChanged = value !== undefined || wrong !== undefined;
  const id = `field-${name}`;
  const kind = kindOf(facts.schema);
  const input = {
    ...{ id, name, facts, value, wrong, model, isWrong: Boolean(problem) },
    fallback: defaultOf(name, facts, model),
    described: [facts.help && `${id}-help`, problem && `${id}-problem`].filter(Boolean).join(" "),
    onText: (/** @type {string} */ text) => typeField(open, name, text, facts),
    onValue: (/** @type {any} */ next) => setField(open, name, next),
    onWrong: (/** @type {import("./validity.js").Wrong} */ next) => markWrong(open, name, next),
  };
  const isInLine = kind === "number" || kind === "choice";
  const tab = TAB_OF[name];
  return html`<div ref=${ref} class=${`param ${isInLine ? "is-inline" : ""} ${isChanged ? "is-set" : ""} ${problem ? "is-wrong" : ""}`} data-field=${name}>
    <div class="param-head">
      <label class="param-title" for=${id} title=${name}>${facts.title}${isChanged && html`<span class="param-mark"><span class="visually-hidden">${t("changed")}</span></span>`}</label>
      ${isChanged && html`<${IconButton} icon="again" size=${14} class="param-reset" label=${t("Reset {field}", { field: facts.title })} onClick=${() => setField(open, name, undefined)} />`}
    </div>
    ${tab ? html`<button type="button" id=${id} class="button button-small param-link" onClick=${() => (panelTab.value = tab)}>${tab === "tools" ? t("Edit in Tools") : t("Edit in Output")}</button>` : html`<${Input} ...${input} />`}
    ${kind === "number" && sliderOf(name, facts.schema, model) && html`<${Slider} ...${input} />`}
    ${facts.help && html`<p class="hint param-help" id=${`${id}-help`}>${facts.help}</p>`}
    ${problem && html`<p class="problem" id=${`${id}-problem`} role="alert">${problem}</p>`}
  </div>`;
}
