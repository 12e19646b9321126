// @ts-check
// The filters of the search: a form below its box, and one chip for each that holds.
import { html, signal, useEffect, useSignal } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import { locale, t } from "../core/i18n.js";
import { IconButton } from "../view/controls.js";
import { Icon } from "../view/icons.js";
import { changeFilters, filters, isFiltered, isImpossible, NO_FILTERS } from "./search.js";

/** @import { Filters } from "./search.js" */

/** @typedef {{models: string[], tags: string[]}} Facets the names to choose from */

const isOpen = signal(false);

export function FilterButton() {
  return html`<${IconButton} icon="filter" id="chat-filters" class=${isFiltered.value ? "is-on" : ""} size=${16} label=${t("Filters")} expanded=${isOpen.value} onClick=${() => (isOpen.value = !isOpen.value)} />`;
}

export function FilterBox() {
  if (!isOpen.value) return isFiltered.value ? html`<${Chips} />` : null;
  return html`<${Form} />`;
}

function Form() {
  const facets = useSignal(/** @type {Facets} */ ({ models: [], tags: [] }));
  const problem = useSignal("");
  useEffect(() => {
    api("GET", "facets").then(
      (/** @type {Facets} */ found) => (facets.value = found),
      (error) => {
        if (!(error instanceof ApiProblem)) throw error;
        problem.value = error.message;
      },
    );
  }, []);
  const { model, tag, has_tools: hasTools, first, last } = filters.value;
  const change = (/** @type {keyof Filters} */ name) => (/** @type {any} */ event) => changeFilters({ [name]: event.target.value });
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    isOpen.value = false;
    document.getElementById("chat-filters")?.focus();
  };
  return html`<div class="filters" role="group" aria-label=${t("Filters")} onKeyDown=${key}>
    <${Choice} id="filter-model" title=${t("Model")} value=${model} names=${facets.value.models} all=${t("Any model")} onChange=${change("model")} />
    <${Choice} id="filter-tag" title=${t("Tag")} value=${tag} names=${facets.value.tags} all=${t("Any tag")} onChange=${change("tag")} />
    <label class="filter is-day"><span>${t("Changed from")}</span><input class="input" id="filter-first" type="date" max=${last || undefined} value=${first} onChange=${change("first")} /></label>
    <label class="filter is-day"><span>${t("until")}</span><input class="input" id="filter-last" type="date" min=${first || undefined} value=${last} onChange=${change("last")} /></label>
    <label class="check"><input id="filter-tools" type="checkbox" checked=${hasTools} onChange=${(/** @type {any} */ event) => changeFilters({ has_tools: event.target.checked })} />${t("With tools")}</label>
    <button type="button" class="button button-quiet button-small" disabled=${!isFiltered.value} onClick=${() => changeFilters(NO_FILTERS)}>${t("Clear")}</button>
    ${isImpossible.value && html`<p class="problem">${t("The last day is before the first one.")}</p>`}
    ${problem.value && html`<p class="problem" role="alert">${problem.value}</p>`}
  </div>`;
}

/** @param {{id: string, title: string, value: string, names: string[], all: string, onChange: (event: Event) => void}} props */
function Choice({ id, title, value, names, all, onChange }) {
  const shown = value && !names.includes(value) ? [value, ...names] : names;
  return html`<label class="filter"><span>${title}</span><select class="select" id=${id} value=${value} onChange=${onChange}>
    <option value="">${all}</option>${shown.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`;
}

/** What holds while the form is closed; a press on one takes it away. */
function Chips() {
  const { model, tag, has_tools: hasTools, first, last } = filters.value;
  /** @type {{text: string, off: Partial<Filters>}[]} */
  const held = [];
  if (model) held.push({ text: model, off: { model: "" } });
  if (tag) held.push({ text: tag, off: { tag: "" } });
  if (first) held.push({ text: t("from {day}", { day: dayOf(first) }), off: { first: "" } });
  if (last) held.push({ text: t("until {day}", { day: dayOf(last) }), off: { last: "" } });
  if (hasTools) held.push({ text: t("With tools"), off: { has_tools: false } });
  return html`<div class="filter-chips" role="group" aria-label=${t("Filters")}>${held.map(
    ({ text, off }) => html`<button type="button" class="chip" key=${Object.keys(off)[0]} aria-label=${t("Remove the filter {name}", { name: text })} onClick=${() => removed(off)}><span>${text}</span><${Icon} name="close" size=${12} /></button>`,
  )}</div>`;
}

/** @param {Partial<Filters>} off */
function removed(off) {
  changeFilters(off);
  requestAnimationFrame(() => document.activeElement === document.body && document.getElementById("chat-filters")?.focus());
}

/** @param {string} day */
function dayOf(day) {
  const [year, month, date] = day.split("-").map(Number);
  return new Date(year, month - 1, date).toLocaleDateString(locale, { day: "numeric", month: "short", year: "numeric" });
}
