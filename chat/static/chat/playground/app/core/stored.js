// @ts-check
// Turns as the server keeps them, which may be of any shape: people write files for imports by hand. What the page cannot read becomes text,
// as JSON, or is left out where it is no text.
import { textOf } from "./answers.js";
import { isObject } from "./json.js";

/** @import { AnswerContent, Asked, Call, Choice, Content, Part, Problem, TurnFacts, Usage } from "./types.js" */

const CHOICE_NAMES = ["content", "reasoning", "calls"];

/** A turn as the page can show it. @param {Record<string, any>} stored @returns {TurnFacts} */
export function turnFrom(stored) {
  const { id, parent, role, state, content, parameters, usage, timings, error, time, ...others } = stored;
  const known = { parameters: askedFrom(parameters), usage: usageFrom(usage), timings: isObject(timings) ? timings : undefined, error: problemFrom(error) };
  const read = { ...others, ...known, content: contentFrom(role, content), time: Number.isNaN(Date.parse(time)) ? undefined : time };
  return { id, parent, role, state, .../** @type {object} */ (Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined))) };
}

/** @param {string} role @param {any} content @returns {Content | undefined} */
function contentFrom(role, content) {
  if (content === undefined || content === null) return undefined;
  const read = Array.isArray(content) ? content.map(partFrom) : isObject(content) ? answerFrom(content) : text(content);
  if (role !== "assistant") return Array.isArray(read) ? read : textOf(read);
  return isObject(read) ? /** @type {AnswerContent} */ (read) : { choices: [choiceFrom(textOf(read))], shown: 0 };
}

/** @param {any} value */
const text = (value) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));

/** @param {any} part @returns {Part} */
function partFrom(part) {
  if (typeof part?.text === "string") return { ...part, type: text(part.type) || "text" };
  const isOther = typeof part?.type === "string" && part.type !== "text" && part.text === undefined; // an image, say
  return isOther ? part : { type: "text", text: JSON.stringify(part) };
}

/** @param {Record<string, any>} content @returns {AnswerContent} */
function answerFrom({ choices, shown, prompt_logprobs: prompt, ...others }) {
  if (!Array.isArray(choices)) return { choices: [choiceFrom({ choices, shown, ...others })], shown: 0 };
  const read = choices.map(choiceFrom);
  return { choices: read, shown: Number.isInteger(shown) && shown in read ? shown : 0, ...(isPrompt(prompt) ? { prompt_logprobs: prompt } : {}) };
}

/** @param {any} choice @returns {Choice} */
function choiceFrom(choice) {
  if (!isObject(choice) || !CHOICE_NAMES.some((name) => name in choice)) return { content: text(choice), reasoning: "", calls: [] };
  const { content, reasoning, calls, logprobs, reasoning_at: at, ...others } = choice;
  const read = { ...others, content: text(content), reasoning: text(reasoning), calls: [calls ?? []].flat().map(callFrom) };
  return { ...read, ...(isTokens(logprobs) ? { logprobs } : {}), ...(isSpan(at) ? { reasoning_at: at } : {}) };
}

/** @param {any} call @returns {Call} */
const callFrom = (call) => (isObject(call) ? { ...call, id: text(call.id) || null, name: text(call.name), arguments: text(call.arguments) } : { id: null, name: "", arguments: text(call) });

/** @param {any} at @returns {at is [number, number]} */
const isSpan = (at) => Array.isArray(at) && at.length === 2 && at.every(Number.isFinite);

/** @param {any} tokens */
const isTokens = (tokens) => Array.isArray(tokens) && tokens.every((token) => isToken(token) && Array.isArray(token.top) && token.top.every(isToken));

/** Tokens of a prompt, of which the first has no probability. @param {any} tokens */
const isPrompt = (tokens) => Array.isArray(tokens) && isTokens(tokens.filter((token) => token !== null));

/** @param {any} token */
const isToken = (token) => typeof token?.token === "string" && token.logprob !== undefined;

/** @param {any} parameters @returns {Asked | undefined} */
function askedFrom(parameters) {
  if (!isObject(parameters)) return undefined;
  const { system, fields, prefix } = parameters;
  return { system: text(system), fields: isObject(fields) ? fields : {}, ...(typeof prefix === "string" ? { prefix } : {}) };
}

/** @param {any} usage @returns {Usage | undefined} */
const usageFrom = (usage) => (Number.isFinite(usage?.prompt_tokens) && Number.isFinite(usage?.completion_tokens) ? { cached_tokens: 0, reasoning_tokens: 0, ...usage } : undefined);

/** @param {any} error @returns {Problem | undefined} */
const problemFrom = (error) => (isObject(error) ? { ...error, message: text(error.message ?? error), code: error.code ?? null, param: error.param ?? null } : undefined);
