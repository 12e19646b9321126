// @ts-check
// What is known of an answer, in words and figures: where its time went, how it ended, what it cost.
import * as app from "../core/app.js";
import { mark, number, plural, seconds, t } from "../core/i18n.js";

/** @import { Turn } from "../core/tree.js" */
/** @import { Cost, Price, Timings, Usage } from "../core/types.js" */

/** @typedef {"load" | "queue" | "prompt" | "answer"} PartName */
/** @typedef {{name: PartName, start: number, seconds: number}} Part a stretch of an answer's time */

const NAMES = { load: mark("Waiting for the model to load"), queue: mark("Waiting in the queue"), prompt: mark("Reading the prompt"), answer: mark("Writing the answer") };
const SHORTEST_S = 0.001;

/** @param {PartName} name */
export const partName = (name) => t(NAMES[name]);

/** Where the time of an answer went, from its arrival to its end. @param {Timings | undefined} timings @returns {Part[]} */
export function partsOf(timings) {
  if (timings?.total_s == null) return [];
  const first = timings.first_token_s ?? timings.total_s;
  const waited = Math.min(timings.queue_s ?? 0, first);
  const loading = Math.min(timings.loading_s ?? 0, waited);
  /** @type {[PartName, number][]} */
  const lengths = [["load", loading], ["queue", waited - loading], ["prompt", first - waited], ["answer", timings.total_s - first]];
  let start = 0;
  return lengths
    .map(([name, length]) => {
      const part = { name, start, seconds: length };
      start += length;
      return part;
    })
    .filter((part) => part.seconds >= SHORTEST_S);
}

/** @param {number} value seconds */
export const duration = (value) => (value > 0 && value < 0.01 ? `${number(1000 * value, { maximumFractionDigits: 1 })} ms` : seconds(value));

/** How an answer ended, if there is more to say than that the model ended it. @param {Turn} turn @param {number} shown */
export function endOf({ facts: { outcome, usage, model }, choices }, shown) {
  const { finish_reason: reason, stop } = choices[shown] ?? {};
  if (outcome === "stopped") return t("stopped");
  if (reason === "length") {
    const context = app.modelOf(model ?? "")?.context;
    const isFull = context && usage && choices.length === 1 && usage.prompt_tokens + usage.completion_tokens >= context;
    return isFull ? t("cut: the model's context is full") : t("cut at the token limit");
  }
  if (typeof stop === "string") return t("ended by the stop string {stop}", { stop: JSON.stringify(stop) });
  if (typeof stop === "number") return t("ended by the stop token {id}", { id: stop });
  if (reason === "tool_calls") return t("calls a tool");
  return "";
}

/** An amount of money with three digits that count. @param {number} amount @param {string} currency */
export function money(amount, currency) {
  try {
    const maximumFractionDigits = amount && Math.abs(amount) < 1 ? digitsOf(amount) : 2;
    return number(amount, { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits });
  } catch {
    return `${number(amount, { maximumSignificantDigits: 3 })} ${currency}`; // a currency that is none of ISO 4217
  }
}

/** @param {number} amount below one */
const digitsOf = (amount) => Math.min(12, Math.max(2, 2 - Math.floor(Math.log10(Math.abs(amount)))));

/** @param {Cost | null | undefined} cost */
export const costText = (cost) => (cost ? money(Number(cost.amount), cost.currency) : "");

/**
 * @typedef {object} Row a kind of tokens, what they cost and how fast they were
 * @property {string} name
 * @property {number} num
 * @property {number | null} rate per second
 * @property {string} [price]
 * @property {number | null} cost
 */

/** @param {Usage} usage @param {Timings | undefined} timings @param {Price | null | undefined} price @returns {Row[]} */
export function tokenRows(usage, timings, price) {
  const read = usage.prompt_tokens - usage.cached_tokens;
  const row = (/** @type {string} */ name, /** @type {number} */ num, /** @type {number | null} */ rate, /** @type {string | undefined} */ each) => {
    return { name, num, rate, price: each, cost: each && price ? (num * Number(each)) / price.per_tokens : null };
  };
  const rows = [row(t("Prompt"), read, timings?.prompt_s ? read / timings.prompt_s : null, price?.prompt)];
  if (usage.cached_tokens) rows.push(row(t("Prompt, from the cache"), usage.cached_tokens, null, price?.cached));
  return [...rows, row(t("Answer"), usage.completion_tokens, timings?.tokens_per_s ?? null, price?.completion)];
}

/** @param {number} rate */
export const rateText = (rate) => t("{n} tokens/s", { n: number(rate, { maximumFractionDigits: rate < 100 ? 1 : 0 }) });

/** How many tokens were proposed ahead of the model and how many it took; empty if none were. @param {Usage} usage */
export function draftsText({ accepted_prediction_tokens: accepted = 0, rejected_prediction_tokens: rejected = 0 }) {
  const proposed = accepted + rejected;
  if (!proposed) return "";
  return t("{accepted} of {proposed} proposed tokens accepted ({percent} %)", {
    accepted: number(accepted), proposed: number(proposed), percent: number((100 * accepted) / proposed, { maximumFractionDigits: 0 }),
  });
}

/** Say where the time went: the total, and its parts. @param {Turn} turn */
export function storyOf({ facts: { timings, usage } }) {
  const parts = partsOf(timings);
  const total = timings?.total_s;
  if (total == null || parts.length === 0) return null;
  const slowest = parts.reduce((best, part) => (part.seconds > best.seconds ? part : best));
  const told = parts.map((part) => ({ ...part, text: partText(part, usage), isSlowest: part === slowest && parts.length > 1 }));
  return { total: t("{s} in all", { s: duration(total) }), parts: told };
}

/** @param {Part} part @param {Usage | undefined} usage */
function partText({ name, seconds: length }, usage) {
  const s = duration(length);
  if (name === "load") return t("{s} waiting for the model to load", { s });
  if (name === "queue") return t("{s} waiting for other requests", { s });
  if (name === "prompt") return t("{s} reading the prompt", { s });
  return usage ? t("{s} writing {tokens}", { s, tokens: plural(usage.completion_tokens, "one token", "{n} tokens") }) : t("{s} writing", { s });
}

