// @ts-check
// Which model answers: its name and state, and a list of all with what they can do.
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { mark, number, t } from "../core/i18n.js";
import { page } from "../core/page.js";
import { isLookedAt, loadModel } from "../core/served_models.js";
import { loadingText } from "../core/waiting.js";
import { money } from "../insight/facts.js";
import { Icon } from "./icons.js";
import { moveInMenu, Popover } from "./popover.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { ModelFacts, Price } from "../core/types.js" */

const MANY = 8;
/** What every model does that chats, and what says nothing of chats. */
const PLAIN = new Set(["text", "chat", "completion", "embedding", "structured_output"]);
const MILLION = 1_000_000;
const STATES = { ready: mark("Ready"), loading: mark("Loading"), unloaded: mark("Not loaded"), draining: mark("About to be unloaded"), failed: mark("Failed to load") };

/** @param {{open: Chat}} props */
export function ModelPicker({ open }) {
  const [isOpen, setOpen] = useState(false);
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null));
  const { model } = open.settings.value;
  const facts = app.modelOf(model);
  const show = (/** @type {boolean} */ shown) => {
    setOpen(shown);
    isLookedAt.value = shown;
  };
  useEffect(() => () => void (isLookedAt.value = false), []);
  const name = model || t("No model is served");
  return html`<div class="model-picker">
    <button type="button" ref=${button} id="model" class="model-button" value=${model} aria-haspopup="menu" aria-expanded=${isOpen} aria-label=${t("Model: {name}, {state}", { name, state: facts ? stateText(facts) : t("not served") })}
      title=${t("Model")} onClick=${() => show(!isOpen)}><${Dot} state=${facts?.state ?? "failed"} /><span class="model-name">${name}</span><${Icon} name="down" size=${14} /></button>
    ${isOpen && html`<${Popover} anchor=${button.current} class="models" focus=${app.models.value.length > MANY ? "input" : "[aria-checked=true]"} onClose=${() => show(false)}>
      <${Models} open=${open} onPick=${() => show(false)} /><//>`}
  </div>`;
}

/** @param {{open: Chat, onPick: () => void}} props */
function Models({ open, onPick }) {
  const [filter, setFilter] = useState("");
  const models = app.models.value;
  const sought = filter.trim().toLowerCase();
  const found = models.filter(({ id, aliases = [] }) => [id, ...aliases].some((name) => name.toLowerCase().includes(sought)));
  const pick = (/** @type {string} */ id) => {
    acts.changeSettings(open, { model: id });
    onPick();
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && found.length > 0) pick(found[0].id);
    else if (event.key === "ArrowDown") /** @type {HTMLElement | null} */ (document.querySelector(".models [role^=menuitem]"))?.focus();
    else return;
    event.preventDefault();
  };
  if (models.length === 0) {
    return html`<div class="models-none"><b>${t("No model is served")}</b><p>${page.manages_models ? t("Pull or register one in the console, under Models.") : t("An administrator can pull or register one in the console.")}</p>
      ${page.manages_models && html`<a class="button button-small" href=${page.urls.console}>${t("Open the console")}</a>`}</div>`;
  }
  return html`${models.length > MANY && html`<input class="input models-filter" type="search" aria-label=${t("Filter models")} placeholder=${t("Filter models")} autocomplete="off" value=${filter}
      onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} onKeyDown=${key} />`}
    <div role="menu" aria-label=${t("Models")} onKeyDown=${moveInMenu}>
      ${found.map((facts) => html`<${ModelRow} key=${facts.id} facts=${facts} isChosen=${facts.id === open.settings.value.model} onPick=${() => pick(facts.id)} />`)}
    </div>
    ${found.length === 0 && html`<p class="models-none" role="status">${t("No model has this in its name.")}</p>`}`;
}

/** @param {{facts: ModelFacts, isChosen: boolean, onPick: () => void}} props */
function ModelRow({ facts, isChosen, onPick }) {
  const isLoadable = facts.state === "unloaded" || facts.state === "failed";
  const words = new Set([...(facts.modalities ?? []), ...(facts.capabilities ?? [])]); // sound has one word in both
  const tags = [...words].filter((name) => !PLAIN.has(name));
  return html`<div class=${`model-row ${isChosen ? "is-chosen" : ""}`} role="none">
    <button type="button" class="model-pick" role="menuitemradio" aria-checked=${isChosen} tabindex="-1" data-model=${facts.id} onClick=${onPick}>
      <${Dot} state=${facts.state} />
      <span class="model-about">
        <span class="model-title"><span class="model-id">${facts.id}</span>${facts.is_default && html`<span class="model-mark">${t("default")}</span>`}${facts.deprecated_at && html`<span class="model-mark is-warning">${t("deprecated")}</span>`}</span>
        <span class="model-facts">${[facts.context && t("{n} tokens", { n: number(facts.context) }), facts.price && priceText(facts.price)].filter(Boolean).map((text) => html`<span>${text}</span>`)}${tags.map((tag) => html`<span class="model-tag">${tag}</span>`)}</span>
        ${facts.state !== "ready" && html`<span class=${`model-state ${facts.state === "failed" ? "is-problem" : ""}`}>${stateText(facts)}</span>`}
        ${facts.state === "loading" && html`<${Progress} facts=${facts} />`}
      </span>
      ${isChosen && html`<${Icon} name="check" size=${16} />`}
    </button>
    ${isLoadable && html`<button type="button" role="menuitem" tabindex="-1" class="button button-small model-load" aria-label=${t("Load now: {name}", { name: facts.id })} onClick=${() => loadModel(facts.id)}>${t("Load now")}</button>`}
  </div>`;
}

/** What is to be known of the chosen model before a message is sent; nothing of one that is ready. @param {{open: Chat}} props */
export function ModelLine({ open }) {
  const { model } = open.settings.value;
  const facts = app.modelOf(model);
  if (!model || facts?.state === "ready" || open.isBusy.value) return null;
  if (!facts) return html`<p class="model-line is-problem" role="status">${t("{name} is not served here any more; choose another model.", { name: model })}</p>`;
  const load = html`<button type="button" class="button button-small" onClick=${() => loadModel(model)}>${facts.state === "failed" ? t("Try again") : t("Load now")}</button>`;
  if (facts.state === "loading") return html`<p class="model-line" role="status"><span>${stateText(facts)}</span><${Progress} facts=${facts} /></p>`;
  if (facts.state === "failed") return html`<p class="model-line is-problem" role="status"><span>${stateText(facts)}</span>${load}</p>`;
  return html`<p class="model-line" role="status"><span>${t("Not loaded: it is loaded with your message.")}</span>${load}</p>`;
}

/** @param {ModelFacts} facts */
function stateText({ state, phase, fraction, reason }) {
  if (state === "loading") return loadingText(phase, fraction);
  const text = t(STATES[/** @type {keyof typeof STATES} */ (state)] ?? state);
  return state === "failed" && reason ? `${text}: ${reason}` : text;
}

/** @param {Price} price */
function priceText({ prompt, completion, currency, per_tokens: per }) {
  const ofMillion = (/** @type {string} */ amount) => money((Number(amount) * MILLION) / per, currency);
  return t("{prompt} in, {completion} out per million", { prompt: ofMillion(prompt), completion: ofMillion(completion) });
}

/** @param {{state: string}} props */
const Dot = ({ state }) => html`<span class="model-dot" data-state=${state} aria-hidden="true"></span>`;

/** @param {{facts: ModelFacts}} props */
const Progress = ({ facts }) => html`<progress class="model-progress" max="1" value=${facts.fraction || undefined} aria-label=${t("Loading {name}", { name: facts.id })}></progress>`;
