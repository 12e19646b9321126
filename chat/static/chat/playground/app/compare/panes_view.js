// @ts-check
// Compared chats, side by side; on phones one beside the other, to be swiped.
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { Composer } from "../view/composer.js";
import { IconButton, Menu, MenuAct } from "../view/controls.js";
import { Icon, StopIcon } from "../view/icons.js";
import { ModelLine } from "../view/model_picker.js";
import { SystemPrompt } from "../view/system_prompt.js";
import { MessageList, useNewest } from "../view/transcript.js";
import { saidIn, showDifferences } from "./differences.js";
import { Figures } from "./figures.js";
import { scrollInStep } from "./in_step.js";
import { PaneSettings } from "./pane_settings.js";
import { columns, PaneLine } from "./pane_widths.js";
import { activate, addPane, asked, changePane, closePane, endComparing, focusPane, isBlind, lastAnswer, MAX_PANES, paneName, panes, promote, scrollsInStep, sendToAll,
  setBlind, shared, stopAll, swap, withdrawAll } from "./panes.js";
import { canVote } from "./votes.js";
import { askVote, showVotes } from "./votes_dialog.js";

/** @import { ComponentChildren } from "../../../vendor/preact.js" */
/** @import { Pane } from "./panes.js" */

/** @param {{children: ComponentChildren}} props `children`: what stands between the panes and the message box */
export function Panes({ children }) {
  const row = useRef(/** @type {HTMLDivElement | null} */ (null));
  /** The area that the reader scrolls; others follow. */
  const leader = useRef(/** @type {Element | null} */ (null));
  const lead = (/** @type {Event} */ event) => {
    leader.current = /** @type {Element} */ (event.target).closest(".pane")?.querySelector(".pane-text") ?? null;
  };
  const scrolled = (/** @type {Event} */ event) => {
    if (!scrollsInStep.value || event.target !== leader.current || !row.current) return;
    const areas = /** @type {HTMLElement[]} */ ([...row.current.querySelectorAll(".pane-text")]);
    scrollInStep(/** @type {HTMLElement} */ (event.target), areas.filter((area) => area !== event.target));
  };
  const stopWhere = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !shared.value.isBusy.value) return;
    event.preventDefault();
    acts.stop(shared.value);
  };
  useEffect(() => {
    const node = /** @type {HTMLElement} */ (row.current);
    node.addEventListener("scroll", scrolled, true);
    return () => node.removeEventListener("scroll", scrolled, true);
  }, []);
  return html`<main class=${`compare ${isBlind.value ? "is-blind" : ""}`} id="conversation" aria-label=${t("Compared chats")}>
      <h1 class="visually-hidden">${t("Compare")}</h1>
      <${Toolbar} />
      <${PaneTabs} row=${row} />
      <div class="panes" ref=${row} style=${{ "--columns": columns() }} onPointerOver=${lead} onTouchStart=${lead} onFocusIn=${lead} onWheel=${lead}>
        ${panes.value.flatMap((pane, at) => [at > 0 && html`<${PaneLine} key=${at} at=${at - 1} />`, html`<${PaneView} key=${pane.id} pane=${pane} at=${at} />`])}
      </div>
    </main>
    ${children}
    <div class="compare-foot" onKeyDown=${stopWhere}><${Composer} open=${shared.value} asked=${asked.value.map(({ chat }) => chat)} onSend=${sendToAll} /></div>`;
}

/** The last answer of each pane that has one. */
const lastAnswers = () =>
  panes.value.flatMap((pane, at) => {
    const turn = lastAnswer(pane);
    const name = isBlind.value ? paneName(at) : `${paneName(at)} · ${pane.chat.settings.value.model}`;
    return turn ? [{ id: pane.id, name, text: saidIn(pane.chat, turn) }] : [];
  });

function Toolbar() {
  const isBusy = panes.value.some(({ chat }) => chat.isBusy.value);
  const numAnswers = panes.value.filter(lastAnswer).length;
  return html`<div class="compare-bar" role="toolbar" aria-label=${t("Compare")}>
    <button type="button" class="button button-small" id="add-pane" disabled=${panes.value.length >= MAX_PANES} onClick=${addPane}><${Icon} name="plus" size=${14} />${t("Add pane")}</button>
    <button type="button" class="button button-small" aria-pressed=${scrollsInStep.value} onClick=${() => (scrollsInStep.value = !scrollsInStep.value)}>${t("Scroll in step")}</button>
    <button type="button" class="button button-small" id="blind" aria-pressed=${isBlind.value} onClick=${() => setBlind(!isBlind.value)}>${t("Hide names")}</button>
    <button type="button" class="button button-small" id="differences" disabled=${numAnswers < 2} onClick=${() => showDifferences(t("Differences of the last answers"), lastAnswers)}>${t("Differences")}</button>
    <button type="button" class="button button-small" id="votes" onClick=${showVotes}>${t("Votes")}</button>
    <span class="compare-end">
      ${isBusy && html`<button type="button" class="button button-small" id="stop-all" onClick=${stopAll}><${StopIcon} />${t("Stop all")}</button>`}
      <button type="button" class="button button-small" id="end-comparing" onClick=${endComparing}>${t("End")}</button>
    </span>
  </div>`;
}

/** Which pane is in sight, where they do not all fit. @param {{row: {current: HTMLElement | null}}} props */
function PaneTabs({ row }) {
  const [seen, setSeen] = useState(0);
  const num = panes.value.length;
  useEffect(() => {
    const node = row.current;
    if (!node) return;
    const look = () => setSeen(Math.round((node.scrollLeft / Math.max(1, node.scrollWidth)) * num));
    node.addEventListener("scroll", look, { passive: true });
    return () => node.removeEventListener("scroll", look);
  }, [num]);
  return html`<nav class="pane-tabs segments" aria-label=${t("Panes")}>
    ${panes.value.map((pane, at) => html`<button type="button" key=${pane.id} class="segment" aria-pressed=${at === seen} onClick=${() => focusPane(at)}>${paneName(at)}</button>`)}
  </nav>`;
}

/** @param {{pane: Pane, at: number}} props */
function PaneView({ pane, at }) {
  const { chat } = pane;
  const isDetached = pane.isDetached.value;
  const name = paneName(at);
  return html`<section class=${`pane ${app.chat.value === chat ? "is-active" : ""} ${isDetached ? "is-detached" : ""}`} id=${`pane-${at + 1}`} data-pane=${pane.id} tabindex="-1"
    aria-label=${isBlind.value ? name : `${name}, ${chat.settings.value.model}`} onFocusIn=${() => activate(pane)}>
    <${PaneHead} pane=${pane} name=${name} />
    ${!isBlind.value && html`<${PaneSettings} pane=${pane} />`}
    <${PaneText} pane=${pane} name=${name} />
    <${PaneFoot} pane=${pane} name=${name} />
    ${isDetached && html`<${Composer} prefix=${`${pane.id}-`} open=${chat} />`}
  </section>`;
}

/** @param {{pane: Pane, name: string}} props */
function PaneHead({ pane, name }) {
  const { chat, isDetached } = pane;
  const others = panes.value.length > 1;
  return html`<header class="pane-head">
    <h2 class=${isBlind.value ? "" : "visually-hidden"}>${name}</h2>
    ${!isBlind.value &&
    html`<label class="pane-model"><span class="visually-hidden">${t("Model of {pane}", { pane: name })}</span>
      <select value=${chat.settings.value.model} onChange=${(/** @type {any} */ event) => changePane(pane, { model: event.target.value })}>
        ${app.models.value.map(({ id }) => html`<option key=${id} value=${id}>${id}</option>`)}</select></label>`}
    ${isDetached.value && html`<span class="badge">${t("Detached")}</span>`}
    <span class="pane-acts">
      ${chat.isBusy.value && html`<button type="button" class="button button-quiet button-icon" aria-label=${t("Stop {pane}", { pane: name })} title=${t("Stop")} onClick=${() => acts.stop(chat)}><${StopIcon} /></button>`}
      <${Menu} label=${t("Acts of {pane}", { pane: name })}>
        <${MenuAct} icon="send" onClick=${() => (isDetached.value = !isDetached.value)}>${isDetached.value ? t("Attach: ask it with the others") : t("Detach: ask it by itself")}<//>
        <${MenuAct} icon="columns" disabled=${!others} onClick=${() => swap(pane)}>${t("Swap with the next pane")}<//>
        <${MenuAct} icon="share" disabled=${chat.isEmpty.value} onClick=${() => promote(pane)}>${t("Make it a chat of its own")}<//>
      <//>
      <${IconButton} icon="close" size=${16} label=${t("Close {pane}", { pane: name })} onClick=${() => closePane(pane)} />
    </span>
  </header>`;
}

/** @param {{pane: Pane, name: string}} props */
function PaneText({ pane, name }) {
  const { chat } = pane;
  const { area, list, jump } = useNewest(chat);
  return html`<div class="conversation-frame">
    <div class="pane-text" ref=${area} tabindex="0" role="group" aria-label=${t("Conversation of {pane}", { pane: name })}>
      ${chat.isEmpty.value ? html`<p class="pane-empty">${pane.isDetached.value ? t("Ask this pane below.") : t("What you send goes to this pane too.")}</p>` : !isBlind.value && html`<${SystemPrompt} open=${chat} />`}
      <${MessageList} open=${chat} list=${list} id=${`messages-${pane.id}`} label=${t("Messages of {pane}", { pane: name })} />
    </div>
    ${jump}
  </div>`;
}

/** Figures, the vote, and what waits to be asked. @param {{pane: Pane, name: string}} props */
function PaneFoot({ pane, name }) {
  const { chat } = pane;
  const { queue = [] } = chat.draft.value;
  const isAsked = asked.value.includes(pane);
  return html`<div class="pane-foot">
    ${isAsked && queue.length > 0 && html`<p class="hint">${plural(queue.length, "One message waits for the end of the answer.", "{n} messages wait for the end of the answer.")}
      ${!chat.isBusy.value && html`<button type="button" class="button button-small" onClick=${() => acts.sendWaiting(chat)}>${t("Send now")}</button>`}
      <button type="button" class="button button-small" onClick=${() => withdrawAll(pane)}>${t("Withdraw")}</button></p>`}
    ${isAsked && !isBlind.value && html`<${ModelLine} open=${chat} />`}
    <${Figures} pane=${pane} />
    ${canVote() && lastAnswer(pane) && html`<button type="button" class="button button-small" data-vote onClick=${() => askVote(pane, name)}><${Icon} name="check" size=${14} />${t("This one is best")}</button>`}
  </div>`;
}
