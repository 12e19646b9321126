// @ts-check
// The figures of the panes' last answers, with the best of each marked.
import { html } from "../../../vendor/preact.js";
import { number, seconds, t } from "../core/i18n.js";
import { costText } from "../insight/facts.js";
import { lastAnswer, panes } from "./panes.js";

/** @import { Turn } from "../core/tree.js" */
/** @import { Pane } from "./panes.js" */

/**
 * @typedef {object} Figure
 * @property {() => string} title
 * @property {(turn: Turn) => number | undefined | null} value
 * @property {(value: number, turn: Turn) => string} show
 * @property {boolean} [isMore] more is better
 */

/** @type {Figure[]} */
const FIGURES = [
  { title: () => t("First token"), value: ({ facts }) => facts.timings?.first_token_s, show: (value) => seconds(value) },
  { title: () => t("Tokens/s"), value: ({ facts }) => facts.timings?.tokens_per_s, show: (value) => number(value, { maximumFractionDigits: 1 }), isMore: true },
  { title: () => t("Tokens"), value: ({ facts }) => facts.usage?.completion_tokens, show: (value) => number(value) },
  { title: () => t("Cost"), value: ({ facts }) => (facts.cost ? Number(facts.cost.amount) : undefined), show: (_, { facts }) => costText(facts.cost) },
];

/** @param {{pane: Pane}} props */
export function Figures({ pane }) {
  const turn = lastAnswer(pane);
  if (!turn?.facts.usage) return null;
  const shown = FIGURES.filter(({ value }) => value(turn) != null);
  return html`<dl class="figures">${shown.map((figure) => {
    const value = /** @type {number} */ (figure.value(turn));
    const isBest = value === bestOf(figure);
    return html`<div key=${figure.title()} class=${isBest ? "is-best" : ""}><dt>${figure.title()}</dt><dd>${figure.show(value, turn)}${isBest && html`<span class="figures-best">${t("best")}</span>`}</dd></div>`;
  })}</dl>`;
}

/** The best value among the panes; undefined where there is none to compare with, or all are the same. @param {Figure} figure */
function bestOf({ value, isMore }) {
  const values = panes.value.map(lastAnswer).flatMap((turn) => (turn?.facts.usage ? (value(turn) ?? []) : []));
  if (values.length < 2 || new Set(values).size === 1) return undefined;
  return isMore ? Math.max(...values) : Math.min(...values);
}
