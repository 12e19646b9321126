// @ts-check
/** @import { AnswerContent, Call, Choice, Content, Message } from "./types.js" */

/** Larger contents are kept without log-probabilities: the server takes bodies of a MiB. */
const MAX_KEPT_CHARS = 600_000;

/** @returns {Choice} */
const newChoice = () => ({ content: "", reasoning: "", calls: [] });

/** @param {Content | undefined} content @returns {content is AnswerContent} */
export const isAnswer = (content) => typeof content === "object" && !Array.isArray(content) && Array.isArray(content.choices);

/**
 * Put a delta of the socket where it belongs.
 * @param {Choice[]} choices
 * @param {Message} delta
 */
export function grow(choices, { choice: number, text, reasoning, tool_calls: calls, logprobs }) {
  while (choices.length <= number) choices.push(newChoice());
  const choice = choices[number];
  choice.content += text;
  choice.reasoning += reasoning ?? "";
  for (const { index, id, name, arguments: piece } of calls ?? []) {
    const call = (choice.calls[index] ??= { id, name, arguments: "" });
    call.arguments += piece;
  }
  if (logprobs?.length) (choice.logprobs ??= []).push(...logprobs);
}

/** How much has been said, to tell a longer account of an answer from a shorter one. @param {Choice[]} choices */
export function sizeOf(choices) {
  let size = 0;
  for (const { content, reasoning, calls } of choices) {
    size += content.length + reasoning.length;
    for (const call of calls) size += call.arguments.length;
  }
  return size;
}

/** @param {Choice[]} choices */
export const saysAnything = (choices) => sizeOf(choices) > 0 || choices.some((choice) => choice.calls.length > 0);

/** The id by which a call is answered: its own, or its place where the model gave it none. @param {Call} call @param {number} at */
export const callId = (call, at) => call.id || `call-${at}`;

/** The plain text of a turn's content; of an answer, that of a choice. @param {Content | undefined} content @param {number} [choice] */
export function textOf(content, choice) {
  if (content === undefined) return "";
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.flatMap((part) => part.text ?? []).join("\n\n");
  return content.choices[choice ?? content.shown]?.content ?? "";
}

/** The content as it is kept: without log-probabilities, if it is too large with them. @param {Content | undefined} content @param {number} [maxChars] */
export function keptContent(content, maxChars = MAX_KEPT_CHARS) {
  if (!isAnswer(content) || JSON.stringify(content).length <= maxChars) return content;
  const { prompt_logprobs: _, ...rest } = content;
  const choices = content.choices.map(({ logprobs, ...choice }) => (logprobs ? { ...choice, num_unkept_logprobs: logprobs.length } : choice));
  return { ...rest, choices };
}
