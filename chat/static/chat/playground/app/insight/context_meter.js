// @ts-check
// Below the message box: how much of the model's context the message would take, and the keys.
import { html, useEffect } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import * as app from "../core/app.js";
import { mediaIn } from "../core/attached.js";
import { number, t } from "../core/i18n.js";
import { isLoaded } from "../core/loaded.js";
import { preferences } from "../palette/preferences.js";
import { shown } from "../palette/strokes.js";
import { misfitOf } from "../view/fitting_model.js";
import { requestOfDraft } from "./asked.js";

/** @import { ComponentChildren } from "../../../vendor/preact.js" */
/** @import { Chat } from "../core/chat.js" */
/** @import { Measure } from "../core/types.js" */

const QUIET_MS = 400;
/** A server that takes longer to count is sent the message uncounted. */
const MAX_WAIT_MS = 5000;
/** More than what templates say around messages, and the context that every model has. */
const TEMPLATE_TOKENS = 1024;
const SHORTEST_CONTEXT = 2048;

/** @param {{open: Chat, children?: ComponentChildren}} props `children`: what stands before it */
export function ContextMeter({ open, children }) {
  const isUncountable = useCount(open);
  const isCounting = open.isCounting.value;
  const measure = open.measure.value;
  const excess = open.excess.value;
  const refusal = open.refusal.value;
  const hints = preferences.value.enterSends ? t("Enter sends · Shift+Enter new line · Esc stops") : t("{keys} sends · Enter new line · Esc stops", { keys: shown("Mod+Enter") });
  return html`<div class="composer-foot">
    ${children}
    <span class="key-hints">${hints}</span>
    <span class="meter-text">${isCounting ? t("Counting …") : isUncountable ? t("Counted once the model is loaded") : measure && !excess && meterText(measure)}</span>
    ${measure && html`<${Bar} measure=${measure} />`}
  </div>
  ${measure && excess > 0 && !isCounting && html`<p class="problem meter-problem" role="alert">${problemText(measure, excess)}</p>`}
  ${refusal && !excess && refusal.text === open.draft.value.text && refusal.settings === open.settings.value && html`<p class="problem meter-problem" role="alert">${refusal.message}</p>`}`;
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

/** Count what would be sent as soon as it stays the same for a while, and say whether that must wait for the model. @param {Chat} open */
function useCount(open) {
  const draft = open.draft.value;
  const settings = open.settings.value;
  const head = open.head.value;
  const isBusy = open.isBusy.value;
  const hasDraft = Boolean(draft.text.trim() || draft.files?.length);
  const model = app.modelOf(settings.model);
  const canCount = isLoaded(settings.model);
  const isWritten = hasTranscript(open);
  useEffect(() => {
    if (!hasDraft || isBusy || !canCount || isWritten) {
      counted.delete(open);
      open.measure.value = (hasDraft && !isBusy) || isWritten ? null : estimate(open, model?.context);
      return;
    }
    const aborting = new AbortController();
    const timer = setTimeout(() => measure(open, aborting.signal), QUIET_MS);
    return () => {
      clearTimeout(timer);
      aborting.abort();
    };
  }, [open.id, draft.text, draft.files, settings, head, isBusy, canCount, isWritten]);
  useEffect(() => () => void (open.measure.value = null), [open]);
  return hasDraft && !isBusy && !canCount && !isWritten && model !== undefined;
}

/** Whether sound would have to be written down to be counted, which costs what an answer does. A model that hears needs no transcript. @param {Chat} open */
const hasTranscript = (open) => !app.modelOf(open.settings.value.model)?.capabilities?.includes("audio") && mediaOf(open).some(({ kind }) => kind === "input_audio");
/** @param {Chat} open */
const mediaOf = (open) => mediaIn(open.path.value.map(({ facts }) => facts), open.draft.value.files);

/** What each chat would have sent when it was last counted. @type {WeakMap<Chat, unknown[]>} */
const counted = new WeakMap();
/** @param {Chat} open */
const isCounted = (open) => open.measure.value !== null && counted.get(open)?.every((value, at) => value === written(open)[at]);
/** @param {Chat} open */
const written = (open) => [open.draft.value.text, open.draft.value.files, open.settings.value, open.head.value];

/** Whether what is written may be sent. It is counted first, if that is not done yet and it may be too long. @param {Chat} open */
export async function fits(open) {
  if (open.isCounting.value) return false;
  if (open.isBusy.value || !isLoaded(open.settings.value.model) || hasTranscript(open)) return true;
  if (!isCounted(open)) {
    if (isShort(open)) return true;
    open.isCounting.value = true;
    try {
      await measure(open, AbortSignal.timeout(MAX_WAIT_MS));
    } finally {
      open.isCounting.value = false;
    }
  }
  return !isCounted(open) || open.excess.value === 0;
}

/** Whether a message certainly fits: no token is shorter than a byte. How many an image has is not known here. @param {Chat} open */
function isShort(open) {
  if (mediaOf(open).length) return false;
  const { model, parameters } = open.settings.value;
  const { context, defaults } = app.modelOf(model) ?? {};
  const reserve = parameters.max_completion_tokens ?? parameters.max_tokens ?? defaults?.max_tokens ?? 0;
  const numBytes = new TextEncoder().encode(JSON.stringify(requestOfDraft(open))).length;
  return numBytes + TEMPLATE_TOKENS + reserve <= (context ?? SHORTEST_CONTEXT);
}

/** Ask the server what would be sent now takes. Where it does not say so, nothing is known. @param {Chat} open @param {AbortSignal} signal */
async function measure(open, signal) {
  if (isCounted(open)) return;
  const now = written(open);
  const found = await count(open, signal);
  if (signal.aborted) return;
  counted.set(open, now);
  open.measure.value = found;
}

/** @param {Chat} open @param {AbortSignal} signal @returns {Promise<Measure | null>} */
async function count(open, signal) {
  if (misfitOf(open, [open])) return null; // the server would refuse it
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
