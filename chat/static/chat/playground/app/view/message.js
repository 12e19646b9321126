// @ts-check
// One turn on the page. It draws what the turn says and nothing else; what a reader does goes to acts.js.
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { saysAnything, textOf } from "../core/answers.js";
import * as app from "../core/app.js";
import { typedAndFiles } from "../core/attached.js";
import { moment, t } from "../core/i18n.js";
import { roleName } from "../core/roles.js";
import { Counters } from "../insight/counters.js";
import { beginAsTokens } from "../insight/begin_as_tokens.js";
import { Prose } from "../text/prose.js";
import { callOf } from "../tools/call_of.js";
import { constraintOf } from "../tools/constraint.js";
import { CopyButton, IconButton, Menu, MenuAct } from "./controls.js";
import { EditForm } from "./edit_form.js";
import { Files } from "./files.js";
import { lazy } from "./lazy.js";
import { openDialog } from "./layers.js";
import { Reasoning } from "./reasoning.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

const Calls = lazy(async () => (await import("../tools/calls.js")).Calls);
const Insight = lazy(async () => (await import("../insight/insight.js")).Insight);
const RegenerateDialog = lazy(async () => (await import("./regenerate_dialog.js")).RegenerateDialog);
const TokenView = lazy(async () => (await import("../insight/token_view.js")).TokenView);
const Verdict = lazy(async () => (await import("../tools/verdict.js")).Verdict);

/** @param {{open: Chat, turn: Turn, isLast: boolean}} props */
export function Message({ open, turn, isLast }) {
  const { role } = turn.facts;
  const isEditing = app.editing.value === turn.id;
  return html`<li class=${`message message-${role} ${isEditing ? "is-editing" : ""}`} data-turn=${turn.id} data-state=${turn.facts.state} tabindex="-1">
    <${Head} open=${open} turn=${turn} />
    ${isEditing ? html`<${EditForm} open=${open} turn=${turn} />` : role === "assistant" ? html`<${Answer} open=${open} turn=${turn} isLast=${isLast} />` : html`<${Question} open=${open} turn=${turn} />`}
  </li>`;
}

/** @param {{open: Chat, turn: Turn}} props */
function Head({ open, turn }) {
  const called = turn.facts.role === "tool" ? callOf(open, turn) : undefined;
  const { role, time, created_at: at, model } = turn.facts;
  const made = time ? new Date(time) : new Date(1000 * (at ?? 0));
  const isToday = made.toDateString() === new Date().toDateString();
  const shown = isToday ? moment(made, { hour: "2-digit", minute: "2-digit" }) : moment(made);
  return html`<div class="message-head">
    <span class="message-author">${roleName(role)}</span>${called && html`<code class="message-tool-name">${called.name}</code>`}${model && html`<span class="message-model">${model}</span>`}<time dateTime=${made.toISOString()}>${shown}</time>
  </div>`;
}

/** @param {{open: Chat, turn: Turn}} props */
function Question({ open, turn }) {
  const { text, files } = typedAndFiles(turn.facts);
  return html`<${Files} files=${files} />
    ${(text || files.length === 0) && html`<div class="message-body">${text}</div>`}
    <div class="message-foot"><span class="message-acts">
      <${Siblings} open=${open} turn=${turn} />
      <${IconButton} icon="edit" label=${t("Edit")} keys="E" size=${16} disabled=${open.isBusy.value} onClick=${() => (app.editing.value = turn.id)} />
      <${CopyButton} text=${() => textOf(turn.facts.content)} />
    </span></div>`;
}

/** @param {{open: Chat, turn: Turn, isLast: boolean}} props */
function Answer({ open, turn, isLast }) {
  const [look, setLook] = useState(/** @type {Look} */ (beginAsTokens.has(turn.id) ? "tokens" : "prose"));
  const shown = open.shownChoice(turn);
  const choice = turn.choices[shown];
  const isEmpty = !saysAnything(turn.choices);
  const text = choice?.content ?? "";
  const isThinking = turn.isRunning && !text && !choice?.calls.length;
  return html`<${ChoiceTabs} open=${open} turn=${turn} shown=${shown} isLast=${isLast} />
    ${choice?.reasoning && html`<${Reasoning} text=${choice.reasoning} isGrowing=${isThinking} at=${choice.reasoning_at} numTokens=${turn.choices.length === 1 ? turn.facts.usage?.reasoning_tokens : undefined} />`}
    ${look === "tokens"
      ? html`<${TokenView} open=${open} turn=${turn} logprobs=${choice?.logprobs} />`
      : look === "raw"
        ? html`<pre class="message-raw" tabindex="0">${text}</pre>`
        : html`<div class="message-body prose"><${Prose} text=${text} isWhole=${!turn.isRunning} /></div>`}
    ${choice?.calls.length > 0 && html`<${Calls} open=${open} turn=${turn} calls=${choice.calls} isLast=${isLast} />`}
    ${!turn.isRunning && constraintOf(turn.facts.parameters?.fields ?? {}).mode !== "off" && html`<${Verdict} turn=${turn} shown=${shown} />`}
    ${turn.isRunning && html`<${Waiting} turn=${turn} isEmpty=${isEmpty} />`}
    ${turn.facts.error && html`<${Trouble} open=${open} turn=${turn} hasText=${Boolean(text)} />`}
    <div class="message-foot">
      <span class="message-acts">
        <${Siblings} open=${open} turn=${turn} />
        ${!turn.isRunning && html`<${AnswerActs} open=${open} turn=${turn} text=${text} look=${look} setLook=${setLook} hasTokens=${Boolean(choice?.logprobs)} />`}
      </span>
      <${Counters} turn=${turn} shown=${shown} onDetails=${() => openDialog(() => html`<${Insight} open=${open} turn=${turn} />`)} />
    </div>`;
}

/**
 * @typedef {"prose" | "raw" | "tokens"} Look
 * @param {{open: Chat, turn: Turn, text: string, look: Look, setLook: (look: Look) => void, hasTokens: boolean}} props
 */
function AnswerActs({ open, turn, text, look, setLook, hasTokens }) {
  const isBusy = open.isBusy.value;
  const toggle = (/** @type {Look} */ to) => () => setLook(look === to ? "prose" : to);
  return html`${text && html`<${CopyButton} text=${() => text} />`}
    <${IconButton} icon="again" label=${t("Regenerate")} keys="R" size=${16} disabled=${isBusy} onClick=${() => acts.regenerate(open, turn)} />
    ${text && html`<${IconButton} icon="forward" label=${t("Continue")} keys="C" size=${16} disabled=${isBusy} onClick=${() => acts.continueFrom(open, turn)} />`}
    ${hasTokens && html`<${IconButton} icon="tokens" label=${t("Tokens")} size=${16} pressed=${look === "tokens"} onClick=${toggle("tokens")} />`}
    <${Menu} label=${t("More")} align="left">
      <${MenuAct} icon="again" disabled=${isBusy} onClick=${() => openDialog(() => html`<${RegenerateDialog} open=${open} turn=${turn} />`)}>${t("Regenerate with …")}<//>
      <${MenuAct} icon="edit" disabled=${isBusy} keys="E" onClick=${() => (app.editing.value = turn.id)}>${t("Edit")}<//>
      <${MenuAct} icon="text" onClick=${toggle("raw")}>${look === "raw" ? t("Show formatted") : t("Show raw text")}<//>
      <${MenuAct} icon="tokens" onClick=${toggle("tokens")}>${look === "tokens" ? t("Show formatted") : t("Token view")}<//>
      <${MenuAct} icon="code" onClick=${async () => (await import("../insight/view_code.js")).showCode(open, turn)}>${t("View code")}<//>
      <${MenuAct} icon="insight" onClick=${() => openDialog(() => html`<${Insight} open=${open} turn=${turn} />`)}>${t("Details")}<//>
    <//>`;
}

/** `‹ 2/3 ›`: the turns at one place. @param {{open: Chat, turn: Turn}} props */
function Siblings({ open, turn }) {
  open.revision.value; // read, so that a change is noticed
  const siblings = open.siblings(turn);
  const at = siblings.indexOf(turn);
  if (siblings.length < 2) return null;
  const step = (/** @type {number} */ to, /** @type {string} */ label) => () => {
    acts.pick(open, siblings[to]);
    requestAnimationFrame(() => focusIn(siblings[to], label));
  };
  return html`<span class="siblings" role="group" aria-label=${t("Versions")}>
    <${IconButton} icon="left" label=${t("Earlier version")} size=${16} disabled=${at === 0} onClick=${step(at - 1, t("Earlier version"))} />
    <span>${at + 1}/${siblings.length}</span>
    <${IconButton} icon="right" label=${t("Later version")} size=${16} disabled=${at === siblings.length - 1} onClick=${step(at + 1, t("Later version"))} />
    <${IconButton} icon="columns" label=${t("Compare the versions")} size=${16} onClick=${async () => (await import("../compare/versions.js")).showVersions(open, turn)} />
  </span>`;
}

/** Put the focus on the button of this name within a turn: its message is a new one. @param {Turn} turn @param {string} label */
function focusIn(turn, label) {
  const message = document.querySelector(`[data-turn="${turn.id}"]`);
  const wanted = message?.querySelector(`.siblings [aria-label="${label}"]:enabled`) ?? message?.querySelector(".siblings button:enabled");
  if (wanted instanceof HTMLElement) wanted.focus();
}

/** One tab for each choice of an answer; the chat goes on with the one that is shown. @param {{open: Chat, turn: Turn, shown: number, isLast: boolean}} props */
function ChoiceTabs({ open, turn, shown, isLast }) {
  if (turn.choices.length < 2) return null;
  return html`<div class="choices" role="group" aria-label=${t("Answers; the chat goes on with the one that is shown")}>
    ${turn.choices.map(
      (_, at) => html`<button type="button" key=${at} class="button button-small" aria-pressed=${at === shown} disabled=${!isLast && at !== shown}
        onClick=${() => acts.showChoice(open, turn.id, at)}>${t("Answer {n}", { n: at + 1 })}</button>`,
    )}
  </div>`;
}

/** What a running answer waits for. @param {{turn: Turn, isEmpty: boolean}} props */
function Waiting({ turn, isEmpty }) {
  if (app.isAway.value) return html`<p class="waiting">${t("The connection is lost. The answer goes on at the server and is shown here as soon as it is back.")}</p>`;
  const { isResuming, waitsFor } = turn.status.value;
  if (isResuming) return html`<p class="waiting">${t("Resuming: what computed this answer was lost, and it goes on elsewhere.")}</p>`;
  if (!isEmpty) return html`<span class="caret" aria-hidden="true"></span><p class="still-writing">${t("Writing …")}</p>`;
  return html`<div class="pending" aria-hidden="true"><span></span><span></span><span></span></div>${waitsFor && html`<p class="waits-for">${waitsFor}</p>`}`;
}

/** @param {{open: Chat, turn: Turn, hasText: boolean}} props */
function Trouble({ open, turn, hasText }) {
  const { message, code, param } = turn.facts.error ?? { message: "", code: null, param: null };
  const details = [code, param, turn.facts.request_id].filter(Boolean).join(" · ");
  const ref = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => ref.current?.scrollIntoView({ block: "nearest" }), []);
  return html`<div class="message-error" role="alert" ref=${ref}>
    <div>${message}</div>
    ${details && html`<code>${details}</code>`}
    <div class="error-acts">
      ${hasText && html`<button type="button" class="button button-small" disabled=${open.isBusy.value} onClick=${() => acts.continueFrom(open, turn)}>${t("Continue")}</button>`}
      <button type="button" class="button button-small" disabled=${open.isBusy.value} onClick=${() => acts.regenerate(open, turn)}>${t("Try again")}</button>
    </div>
  </div>`;
}
