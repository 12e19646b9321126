// @ts-check
// What an answer cost: tokens, times, money.
import { html } from "../../../vendor/preact.js";
import { number, seconds, t } from "../core/i18n.js";

/** @import { Turn } from "../core/tree.js" */

/** @param {{turn: Turn, shown: number}} props */
export function Counters({ turn, shown }) {
  return html`<span class="message-counters">${counters(turn, shown).map((text) => html`<span key=${text}>${text}</span>`)}</span>`;
}

/** @param {Turn} turn @param {number} shown */
function counters({ facts: { usage, timings, outcome, cost }, choices }, shown) {
  if (!usage) return [];
  const thought = usage.reasoning_tokens ? t(", {n} of them thinking", { n: number(usage.reasoning_tokens) }) : "";
  const several = choices.length > 1 ? t(" in {n} answers, {shown} in this one", { n: choices.length, shown: number(choices[shown]?.tokens ?? 0) }) : "";
  const cached = usage.cached_tokens ? t(", {n} cached", { n: number(usage.cached_tokens) }) : "";
  const list = [
    t("{n} tokens", { n: number(usage.completion_tokens) }) + several + thought,
    t("{n} in the prompt", { n: number(usage.prompt_tokens) }) + cached,
  ];
  if (timings?.first_token_s != null) list.push(t("first after {s}", { s: seconds(timings.first_token_s) }));
  if (timings?.tokens_per_s) list.push(t("{n} tokens/s", { n: number(timings.tokens_per_s, { maximumFractionDigits: 1, minimumFractionDigits: 1 }) }));
  if (cost) list.push(`${cost.amount} ${cost.currency}`);
  if (outcome === "stopped") list.push(t("stopped"));
  else if (choices[shown]?.finish_reason === "length") list.push(t("cut at the token limit"));
  return list;
}
