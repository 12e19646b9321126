// @ts-check
// Tokens of an answer as facts to be drawn: what they spell, how likely they were, which text stands before them.
import { number } from "../core/i18n.js";

/** @import { Choice, TokenFact, TokenLogprob } from "../core/types.js" */

/** Lower bounds of the steps that colours and lines tell apart, the likeliest first. */
const STEPS = [0.9, 0.6, 0.3, 0.1];
const MOST_BITS = 10;
const SPECIAL = /^<[|｜].*[|｜]>$|^<\/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|end_of_utterance|think)>$|^\[\/?(?:INST|BOS|EOS|CLS|SEP|PAD|UNK|MASK)\]$/;
// What cannot be seen, or changes the order of what can: controls, formats, separators, private use.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]/gu;

/** @param {TokenFact} token */
export const probability = ({ logprob }) => Math.exp(logprob);

/** @param {number} share */
export const percent = (share) => `${number(100 * share, share >= 0.1 ? { maximumFractionDigits: 1 } : { maximumSignificantDigits: 2 })} %`;

/** 0 for the likeliest, 4 for the least likely. @param {TokenFact} token */
export function stepOf(token) {
  const step = STEPS.findIndex((bound) => probability(token) >= bound);
  return step < 0 ? STEPS.length : step;
}

/** How surprising a token was, from 0 to 1. @param {TokenFact} token */
const surprise = ({ logprob }) => Math.min(1, -logprob / Math.LN2 / MOST_BITS);

/** The token and its alternatives, each once. @param {TokenLogprob} token @returns {TokenFact[]} */
const outcomes = (token) => (token.top.some(({ id }) => id === token.id) ? token.top : [token, ...token.top]);

/**
 * How undecided the model was at a place, in bits; null where no alternative is known. All tokens beyond the alternatives count as one, so that it
 * is never more than the entropy over the whole vocabulary.
 * @param {TokenLogprob} token
 */
export function entropy(token) {
  const shares = outcomes(token).map(probability);
  if (shares.length < 2) return null;
  const others = Math.max(0, 1 - shares.reduce((sum, share) => sum + share, 0));
  return [...shares, others].reduce((bits, share) => (share > 0 ? bits - share * Math.log2(share) : bits), 0);
}

/** The heights of tokens in the strip, from 0 to 1: their entropy, as a part of the most that so many alternatives can have, or where none are known how
 * surprising they were. @param {TokenLogprob[]} tokens */
export function heightsOf(tokens) {
  const bits = tokens.map(entropy);
  const most = Math.log2(tokens.reduce((num, token) => Math.max(num, outcomes(token).length), 1) + 1);
  const hasEntropy = bits.some((known) => known !== null);
  return { hasEntropy, heights: hasEntropy ? bits.map((known) => (known ?? 0) / most) : tokens.map(surprise) };
}

/** @param {TokenFact} token */
export const isSpecial = ({ token }) => SPECIAL.test(token);

/** The bytes of a token; those of its text where the server does not know them. @param {TokenFact} token */
export const bytesOf = ({ token, bytes }) => (bytes ? Uint8Array.from(bytes) : new TextEncoder().encode(token));

/** The text of a token, or null for a part of a character. @param {TokenFact} token */
export function wholeText(token) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytesOf(token));
  } catch {
    return null;
  }
}

/** A token such that all of it is seen. @param {TokenFact} token */
export function visible(token) {
  const text = wholeText(token);
  if (text === null) return [...bytesOf(token)].map((byte) => `\\x${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
  if (text === "") return token.token ? shown(token.token) : "∅";
  return shown(text);
}

/** @param {string} text */
function shown(text) {
  return text.replaceAll("\r", "␍").replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "·").replace(HIDDEN, codePoint);
}

/** @param {string} character */
const codePoint = (character) => `‹U+${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0").toUpperCase()}›`;

/** @param {TokenFact[]} tokens */
function spelled(tokens) {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return tokens.map((token) => decoder.decode(bytesOf(token), { stream: true })).join("") + decoder.decode();
}

/**
 * Return the text of an answer before one of its tokens; null where that is no text of the answer, such as its reasoning.
 * @param {Choice} choice
 * @param {TokenLogprob[]} logprobs
 * @param {number} at
 * @param {string} prefix the text that the answer went on from
 */
export function textBefore(choice, logprobs, at, prefix) {
  const start = choice.content.startsWith(prefix) ? prefix : "";
  const said = choice.content.slice(start.length);
  const before = spelled(logprobs.slice(0, at));
  // The tokens may begin with reasoning, and end with tokens that are no text.
  const skipped = choice.reasoning ? spelled(logprobs).lastIndexOf(said) : 0;
  if (skipped < 0 || before.length < skipped) return null;
  return start + before.slice(skipped);
}

/** Parts of the list that are drawn together, ending with lines where that can be. @param {TokenLogprob[]} tokens @returns {[number, number][]} */
export function chunksOf(tokens) {
  /** @type {[number, number][]} */
  const chunks = [];
  let from = 0;
  for (let at = 0; at < tokens.length; at += 1) {
    const length = at + 1 - from;
    if (length < 120 || (length < 400 && !tokens[at].token.includes("\n"))) continue;
    chunks.push([from, at + 1]);
    from = at + 1;
  }
  if (from < tokens.length) chunks.push([from, tokens.length]);
  return chunks;
}
