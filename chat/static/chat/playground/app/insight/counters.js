// @ts-check
// What an answer cost: tokens, times, money.
import { html, untracked, useComputed, useEffect, useState } from "../../../vendor/preact.js";
import { number, plural, seconds, t } from "../core/i18n.js";
import { costText, endOf, money, rateText } from "./facts.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

const PAINT_MS = 250;

/** The figures of an answer in one line; estimates, marked ~, while it runs. @param {{turn: Turn, shown: number, onDetails?: () => void}} props */
export function Counters({ turn, shown, onDetails }) {
  const isRunning = useComputed(() => turn.isRunning).value;
  return isRunning ? html`<${LiveCounters} turn=${turn} />` : html`<${FinalCounters} turn=${turn} shown=${shown} onDetails=${onDetails} />`;
}

/** @param {{turn: Turn}} props */
function LiveCounters({ turn }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), PAINT_MS);
    return () => clearInterval(timer);
  }, []);
  const { promptTokens } = turn.status.value;
  // Text arrives far more often than this is drawn.
  const { time, logprobs } = untracked(() => ({ time: turn.facts.time, logprobs: numLogprobs(turn) }));
  const list = [];
  if (logprobs) list.push(`~ ${plural(logprobs, "one token", "{n} tokens")}`);
  if (promptTokens) list.push(t("{n} in the prompt", { n: number(promptTokens) }));
  if (time) list.push(`~ ${number(Math.max(0, Date.now() - Date.parse(time)) / 1000, { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`);
  return html`<span class="message-counters" aria-hidden="true">${list.map((text, at) => html`<span key=${at}>${text}</span>`)}</span>`;
}

/** @param {Turn} turn */
const numLogprobs = ({ choices }) => choices.reduce((num, choice) => num + (choice.logprobs?.length ?? 0), 0);

/** @param {{turn: Turn, shown: number, onDetails?: () => void}} props */
function FinalCounters({ turn, shown, onDetails }) {
  const list = counters(turn, shown);
  if (list.length === 0) return null;
  const parts = list.map((text) => html`<span key=${text}>${text}</span>`);
  if (!onDetails) return html`<span class="message-counters">${parts}</span>`;
  return html`<button type="button" class="message-counters" title=${t("Details")} onClick=${onDetails}>${parts}</button>`;
}

/** @param {Turn} turn @param {number} shown */
function counters(turn, shown) {
  const { usage, timings, cost } = turn.facts;
  const end = endOf(turn, shown);
  if (!usage) return end ? [end] : [];
  const thought = usage.reasoning_tokens ? t(", {n} of them thinking", { n: number(usage.reasoning_tokens) }) : "";
  const { length } = turn.choices;
  const several = length > 1 ? t(" in {n} answers, {shown} in this one", { n: length, shown: number(turn.choices[shown]?.tokens ?? 0) }) : "";
  const cached = usage.cached_tokens ? t(", {n} cached", { n: number(usage.cached_tokens) }) : "";
  const said = plural(usage.completion_tokens, "one token", "{n} tokens") + several + thought;
  const list = [said, t("{n} in the prompt", { n: number(usage.prompt_tokens) }) + cached];
  if (timings?.first_token_s != null) list.push(t("first after {s}", { s: seconds(timings.first_token_s) }));
  if (timings?.tokens_per_s) list.push(rateText(timings.tokens_per_s));
  if (cost) list.push(costText(cost));
  if (end) list.push(end);
  return list;
}

/** What all answers of a chat have cost, on all of its branches. @param {{open: Chat}} props */
export function ChatSum({ open }) {
  open.revision.value; // read, so that a change is noticed
  const answers = [...open.turns.values()].filter((turn) => turn.facts.usage);
  const tokens = answers.reduce((sum, { facts: { usage } }) => sum + (usage ? usage.prompt_tokens + usage.completion_tokens : 0), 0);
  const currency = answers.find(({ facts }) => facts.cost)?.facts.cost?.currency;
  const amount = answers.reduce((sum, { facts: { cost } }) => sum + (cost?.currency === currency ? Number(cost?.amount ?? 0) : 0), 0);
  const told = [plural(answers.length, "one answer", "{n} answers"), plural(tokens, "one token read or written", "{n} tokens read or written")];
  if (currency) told.push(money(amount, currency));
  return html`<p class="hint chat-sum">${t("This chat with all its versions: {facts}", { facts: told.join(" · ") })}</p>`;
}

