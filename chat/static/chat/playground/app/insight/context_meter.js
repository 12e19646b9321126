// @ts-check
// Below the message box: how much of the model's context the message would take, and the keys.
import { html, useEffect, useState } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import * as app from "../core/app.js";
import { number, t } from "../core/i18n.js";
import { isLoaded } from "../core/loaded.js";
import { preferences } from "../palette/preferences.js";
import { shown } from "../palette/strokes.js";
import { requestOfDraft } from "./asked.js";

/** @import { ComponentChildren } from "../../../vendor/preact.js" */
/** @import { Chat } from "../core/chat.js" */

const QUIET_MS = 400;

/**
 * @typedef {object} Measure
 * @property {number} prompt tokens
 * @property {number} reserve most tokens of the answer, 0 for what is left
 * @property {number} context tokens of the model
 * @property {boolean} [isEstimate]
 */

/** @param {{open: Chat, children?: ComponentChildren}} props `children`: what stands before it */
export function ContextMeter({ open, children }) {
  const measure = useMeasure(open);
  const excess = open.excess.value;
  const hints = preferences.value.enterSends ? t("Enter sends · Shift+Enter new line · Esc stops") : t("{keys} sends · Enter new line · Esc stops", { keys: shown("Mod+Enter") });
  return html`<div class="composer-foot">
    ${children}
    <span class="key-hints">${hints}</span>
    <span class="meter-text">${measure && !excess && meterText(measure)}</span>
    ${measure && html`<${Bar} measure=${measure} />`}
  </div>
  ${measure && excess > 0 && html`<p class="problem meter-problem" role="alert">${problemText(measure, excess)}</p>`}`;
}

/** @param {Measure} measure */
function meterText({ prompt, context, isEstimate }) {
  return t("{n} of {context} tokens", { n: `${isEstimate ? "~ " : ""}${number(prompt)}`, context: number(context) });
}

/** @param {Measure} measure @param {number} excess */
function problemText({ prompt, reserve, context }, excess) {
  const facts = { n: number(excess), prompt: number(prompt), reserve: number(reserve), context: number(context) };
  if (reserve && prompt < context) {
    return t("Too long by {n} tokens: {prompt} for the prompt and {reserve} for the answer (max_tokens), where the model takes {context}. Lower max_tokens or shorten the message.", facts);
  }
  return t("Too long by {n} tokens: the prompt has {prompt}, and the model takes {context} with its answer. Shorten the message, begin a new chat or pick a model with a longer context.", facts);
}

/** @param {{measure: Measure}} props */
function Bar({ measure: { prompt, reserve, context } }) {
  const share = (/** @type {number} */ tokens) => `${Math.min(100, (100 * tokens) / context)}%`;
  return html`<span class="meter" data-full=${prompt + (reserve || 1) > context} aria-hidden="true">
    <span class="meter-prompt" style=${{ width: share(prompt) }}></span>
    <span class="meter-reserve" style=${{ width: share(Math.min(reserve, Math.max(0, context - prompt))) }}></span></span>`;
}

/** What the message would take. Null where that is not known. @param {Chat} open @returns {Measure | null} */
function useMeasure(open) {
  const [measure, setMeasure] = useState(/** @type {(Measure & {chat: string}) | null} */ (null));
  const draft = open.draft.value;
  const settings = open.settings.value;
  const head = open.head.value;
  const isBusy = open.isBusy.value;
  const hasDraft = Boolean(draft.text.trim() || draft.files?.length);
  const model = app.modelOf(settings.model);
  const canCount = isLoaded(settings.model);
  const set = (/** @type {Measure | null} */ found) => {
    setMeasure(found && { ...found, chat: open.id });
    open.excess.value = found && !found.isEstimate ? Math.max(0, found.prompt + (found.reserve || 1) - found.context) : 0;
  };
  useEffect(() => {
    if (!hasDraft || isBusy || !canCount) {
      set(hasDraft && !isBusy ? null : estimate(open, model?.context));
      return;
    }
    if (measure?.chat !== open.id) open.excess.value = 0;
    const aborting = new AbortController();
    const timer = setTimeout(async () => {
      const found = await count(open, aborting.signal);
      if (!aborting.signal.aborted) set(found);
    }, QUIET_MS);
    return () => {
      clearTimeout(timer);
      aborting.abort();
    };
  }, [open.id, draft.text, draft.files, settings, head, isBusy, canCount]);
  useEffect(() => () => void (open.excess.value = 0), [open]);
  return measure?.chat === open.id ? measure : null;
}

/** Ask the server. @param {Chat} open @param {AbortSignal} signal @returns {Promise<Measure | null>} */
async function count(open, signal) {
  try {
    const { num_tokens: prompt, max_tokens: reserve, context } = await api("POST", "render", { request: requestOfDraft(open) }, { signal });
    return context ? { prompt, reserve: reserve ?? 0, context } : null;
  } catch (error) {
    if (!signal.aborted && !(error instanceof ApiProblem)) throw error;
    return null;
  }
}

/** What the chat takes so far, by its last answer. @param {Chat} open @param {number | null | undefined} context @returns {Measure | null} */
function estimate(open, context) {
  const last = open.path.peek().at(-1)?.facts;
  if (!context || !last?.usage) return null;
  return { prompt: last.usage.prompt_tokens + last.usage.completion_tokens, reserve: 0, context, isEstimate: true };
}
