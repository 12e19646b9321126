// @ts-check
// An answer token by token: how likely each was, what else could have stood there, and going on from that.
import { html, useMemo, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { isAnswer } from "../core/answers.js";
import { number, plural, t } from "../core/i18n.js";
import { keysOfAct } from "../palette/acts_list.js";
import { Tabs } from "../view/controls.js";
import { beginAsTokens } from "./begin_as_tokens.js";
import { TokenList, useWalk } from "./token_list.js";
import { bytesOf, entropy, heightsOf, isSpecial, percent, probability, textBefore, visible, wholeText } from "./tokens.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */
/** @import { TokenFact, TokenLogprob } from "../core/types.js" */

const THRESHOLDS = [0.5, 0.2, 0.1, 0.05, 0.01];
const ASKED = { logprobs: true, top_logprobs: 5 };
const NUM_BARS = 240;
const STEP_NAMES = ["≥ 90 %", "≥ 60 %", "≥ 30 %", "≥ 10 %", "< 10 %"];

/** @param {{open: Chat, turn: Turn, logprobs?: TokenLogprob[]}} props */
export function TokenView({ open, turn, logprobs }) {
  const { content } = turn.facts;
  const [part, setPart] = useState("answer");
  const prompt = isAnswer(content) ? content.prompt_logprobs?.filter((token) => token !== null) : undefined;
  if (!logprobs?.length && !prompt?.length) return html`<${NoTokens} open=${open} turn=${turn} />`;
  const tabs = [{ id: "answer", title: t("Answer") }, { id: "prompt", title: t("Prompt") }];
  const isPrompt = prompt !== undefined && prompt.length > 0 && (part === "prompt" || !logprobs?.length);
  return html`<section class="token-view" aria-label=${t("Tokens")}>
    ${prompt && logprobs && html`<${Tabs} label=${t("Whose tokens")} tabs=${tabs} current=${part} onPick=${setPart} />`}
    <${Tokens} key=${isPrompt} open=${open} turn=${turn} tokens=${isPrompt ? prompt : logprobs} isPrompt=${isPrompt} />
  </section>`;
}

/** What stands in place of tokens that are not there. @param {{open: Chat, turn: Turn}} props */
function NoTokens({ open, turn }) {
  const numUnkept = turn.choices[open.shownChoice(turn)]?.num_unkept_logprobs;
  const again = () => {
    const { model, parameters } = open.settings.value;
    beginAsTokens.add(acts.regenerate(open, turn, { model: turn.facts.model ?? model, parameters: { ...parameters, ...ASKED } }).id);
  };
  return html`<section class="token-view no-tokens" aria-label=${t("Tokens")}>
    <p>${numUnkept ? t("The probabilities of {n} tokens were too large to be kept: they were shown until the page was left.", { n: number(numUnkept) })
      : turn.isRunning ? t("Tokens are shown as they come, if they were asked for.") : t("Tokens were not asked for.")}</p>
    <div class="token-tools">${!turn.isRunning && html`<button type="button" class="button button-small" disabled=${open.isBusy.value}
      onClick=${again}>${t("Regenerate with tokens")}</button>`}
      <${ChatSwitch} open=${open} /></div>
  </section>`;
}

/** Asks for tokens with each answer of the chat. @param {{open: Chat}} props */
function ChatSwitch({ open }) {
  const { parameters } = open.settings.value;
  const change = (/** @type {any} */ event) => {
    const { logprobs: _, top_logprobs: __, ...others } = open.settings.value.parameters;
    acts.changeSettings(open, { parameters: event.target.checked ? { ...others, ...ASKED } : others });
  };
  return html`<label class="token-switch"><input type="checkbox" checked=${parameters.logprobs === true} onChange=${change} />${t("Ask for tokens in this chat")}</label>`;
}

/** @param {{open: Chat, turn: Turn, tokens: TokenLogprob[], isPrompt: boolean}} props */
function Tokens({ open, turn, tokens, isPrompt }) {
  turn.facts; // read, so that tokens that arrive are noticed: their list grows in place
  const [chosen, setCurrent] = useState(0);
  const [hovered, setHovered] = useState(-1);
  const [threshold, setThreshold] = useState(0.1);
  const [hasNumbers, setNumbers] = useState(true);
  const numTokens = tokens.length; // the list of a running answer grows in place
  const current = Math.min(chosen, numTokens - 1);
  const point = (/** @type {number} */ to) => {
    setHovered(-1);
    setCurrent(to);
  };
  const { list, go } = useWalk(current, point);
  const nextSurprise = () => {
    for (let step = 1; step <= numTokens; step += 1) {
      const at = (current + step) % numTokens;
      if (probability(tokens[at]) < threshold) return go(at);
    }
  };
  const keys = keysOfAct("next-surprise");
  const at = hovered >= 0 && hovered < numTokens ? hovered : current;
  const numSurprises = tokens.reduce((num, token) => num + (probability(token) < threshold ? 1 : 0), 0);
  return html`<div class="token-tools">
      <button type="button" class="button button-small" data-next-surprise disabled=${numSurprises === 0} onClick=${nextSurprise}>${t("Next surprising token")} ${keys && html`<kbd>${keys}</kbd>`}</button>
      <label>${t("below")} <select class="input" value=${threshold} onChange=${(/** @type {any} */ event) => setThreshold(Number(event.target.value))}>
        ${THRESHOLDS.map((share) => html`<option key=${share} value=${share}>${percent(share)}</option>`)}</select></label>
      <span class="hint">${plural(numSurprises, "one of {all}", "{n} of {all}").replace("{all}", number(numTokens))}</span>
      <label class="token-switch"><input type="checkbox" checked=${hasNumbers}
        onChange=${(/** @type {any} */ event) => setNumbers(event.target.checked)} />${t("Numbers")}</label>
      ${!isPrompt && html`<${ChatSwitch} open=${open} />`}
    </div>
    <${Strip} tokens=${tokens} numTokens=${numTokens} current=${at} onPick=${go} />
    <${TokenList} tokens=${tokens} list=${list} current=${current} shown=${at} hasNumbers=${hasNumbers} surpriseKeys=${keys} go=${go} onCurrent=${point} onHover=${setHovered} />
    ${tokens[at] && html`<${Card} open=${open} turn=${turn} tokens=${tokens} at=${at} isPrompt=${isPrompt} />`}
    <${Legend} />`;
}

/**
 * How undecided the model was over the whole answer, or where no alternatives are known how surprising the tokens were; a click leads there.
 * @param {{tokens: TokenLogprob[], numTokens: number, current: number, onPick: (at: number) => void}} props
 */
function Strip({ tokens, numTokens, current, onPick }) {
  const { heights, hasEntropy } = useMemo(() => heightsOf(tokens), [tokens, numTokens]);
  const bars = useMemo(() => {
    const num = Math.min(NUM_BARS, numTokens);
    return Array.from({ length: num }, (_, bar) => {
      const [from, to] = [Math.floor((bar * numTokens) / num), Math.floor(((bar + 1) * numTokens) / num)];
      let best = from;
      for (let at = from; at < to; at += 1) if (heights[at] > heights[best]) best = at;
      return best;
    });
  }, [heights]);
  const path = bars.map((at, bar) => `M${bar + 0.5} 24V${(24 - 23 * Math.max(0.03, heights[at])).toFixed(1)}`).join("");
  const click = (/** @type {MouseEvent} */ event) => {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    onPick(bars[Math.max(0, Math.min(bars.length - 1, Math.floor((bars.length * (event.clientX - box.left)) / box.width)))]);
  };
  const here = numTokens > 0 ? (bars.length * (current + 0.5)) / numTokens : 0;
  return html`<svg class="token-strip" viewBox=${`0 0 ${Math.max(1, bars.length)} 24`} preserveAspectRatio="none" aria-hidden="true" onClick=${click}>
    <title>${hasEntropy ? t("Entropy over the answer: how undecided the model was. It is counted from the alternatives that were asked for, all other tokens as one. Click to go there.")
      : t("Surprise over the answer: its entropy is not known, as no alternatives were asked for. Click to go there.")}</title>
    <path class="strip-bars" d=${path} /><path class="strip-here" d=${`M${here} 0V24`} /></svg>`;
}

const Legend = () => html`<p class="token-legend" aria-hidden="true">${t("Probability")}
  ${STEP_NAMES.map((name, step) => html`<span key=${name} class=${`token step-${step}`}>${name}</span>`)}</p>`;

/** @param {{open: Chat, turn: Turn, tokens: TokenLogprob[], at: number, isPrompt: boolean}} props */
function Card({ open, turn, tokens, at, isPrompt }) {
  const token = tokens[at];
  const others = [...token.top].sort((a, b) => b.logprob - a.logprob);
  const rest = 1 - others.reduce((sum, other) => sum + probability(other), others.some(({ id }) => id === token.id) ? 0 : probability(token));
  const bits = entropy(token);
  const facts = [
    token.rank ? t("rank {n}", { n: number(token.rank) }) : t("rank unknown"),
    t("logprob {n}", { n: number(token.logprob, { maximumFractionDigits: 4 }) }),
    ...(bits === null ? [] : [t("entropy at least {n} bits", { n: number(bits, { maximumFractionDigits: 2 }) })]),
    t("id {id}", { id: token.id }),
    t("bytes {bytes}", { bytes: [...bytesOf(token)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ") || "–" }),
  ];
  return html`<div class="token-card" role="region" aria-label=${t("Token {n}", { n: number(at + 1) })}>
    <p class="token-head"><code class="token-name">${visible(token)}</code><strong>${percent(probability(token))}</strong>
      <span class="hint">${t("token {n} of {all}", { n: number(at + 1), all: number(tokens.length) })}</span></p>
    <p class="hint token-facts">${facts.map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>
    ${others.length > 0 && html`<ol class="token-top" aria-label=${t("The likeliest tokens here")}>${others.map(
      (other) => html`<${Alternative} key=${other.id} open=${open} turn=${turn} tokens=${tokens} at=${at} other=${other} isPrompt=${isPrompt} />`,
    )}</ol>`}
    ${others.length > 0 && rest > 0.0005 && html`<p class="hint">${t("all others: {share}", { share: percent(rest) })}</p>`}
  </div>`;
}

/** @param {{open: Chat, turn: Turn, tokens: TokenLogprob[], at: number, other: TokenFact, isPrompt: boolean}} props */
function Alternative({ open, turn, tokens, at, other, isPrompt }) {
  const isChosen = other.id === tokens[at].id;
  const { why, prefix } = isChosen || isPrompt ? { why: "", prefix: null } : branchFrom(open, turn, tokens, at, other);
  const go = () => {
    const { parameters } = open.settings.value;
    const asked = { ...ASKED, ...parameters, logprobs: true };
    if (prefix !== null) beginAsTokens.add(acts.continueFrom(open, turn, prefix, { parameters: asked }).id);
  };
  const share = probability(other);
  return html`<li class=${isChosen ? "is-chosen" : ""}>
    <code class="token-name">${visible(other)}</code>
    <span class="token-bar" aria-hidden="true"><span style=${{ width: `${100 * share}%` }}></span></span>
    <span class="token-share">${percent(share)}</span>
    ${isChosen ? html`<span class="token-go hint">${t("this one")}</span>`
      : isPrompt ? null
      : prefix === null ? html`<span class="token-go hint">${why}</span>`
      : html`<button type="button" class="button button-small token-go" disabled=${open.isBusy.value}
          aria-label=${t("Continue from this alternative: {token}", { token: visible(other) })}
          title=${t("Continue from this alternative")} onClick=${go}>${t("Continue")}</button>`}
  </li>`;
}

/**
 * The text that a branch with another token goes on from, or why there can be none.
 * @param {Chat} open
 * @param {Turn} turn
 * @param {TokenLogprob[]} tokens
 * @param {number} at
 * @param {TokenFact} other
 */
function branchFrom(open, turn, tokens, at, other) {
  const none = (/** @type {string} */ why) => ({ why, prefix: null });
  const choice = turn.choices[open.shownChoice(turn)];
  if (isSpecial(other)) return none(t("ends or controls"));
  const text = wholeText(other);
  if (text === null) return none(t("part of a character"));
  const before = choice && textBefore(choice, tokens, at, turn.facts.parameters?.prefix ?? "");
  if (before == null) return none(t("reasoning"));
  return before.endsWith("\uFFFD") ? none(t("part of a character")) : { why: "", prefix: before + text };
}
