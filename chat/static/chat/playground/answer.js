// An answer as data, and what arrives of it.
//
// {choices: [{content, reasoning, calls: [{id, name, arguments}], finishReason?, tokens?}], shown: number of the choice that is shown and that
// the chat goes on with, isRunning?, end?: {outcome, usage, timings}, error?: {message, code, param}}
export const newAnswer = (model) => ({ role: "assistant", model, choices: [], shown: 0, isRunning: true });

const newChoice = () => ({ content: "", reasoning: "", calls: [] });

/** Put a delta where it belongs. */
export function grow(choices, { choice: number, text, reasoning, tool_calls: calls }) {
  while (choices.length <= number) choices.push(newChoice());
  const choice = choices[number];
  choice.content += text;
  choice.reasoning += reasoning ?? "";
  for (const { index, id, name, arguments: piece } of calls ?? []) {
    const call = (choice.calls[index] ??= { id, name, arguments: "" });
    call.arguments += piece;
  }
}

/** How much has been said, to tell a longer account of the same answer from a shorter one. */
export function sizeOf(choices) {
  let size = 0;
  for (const { content, reasoning, calls } of choices) {
    size += content.length + reasoning.length;
    for (const call of calls) size += call.arguments.length;
  }
  return size;
}

/** The end that the server tells. */
export function endOf(choices, { choices: ends, outcome, usage, timings }) {
  ends.forEach(({ finish_reason: finishReason, tokens }, number) => {
    while (choices.length <= number) choices.push(newChoice());
    Object.assign(choices[number], { finishReason, tokens });
  });
  return { outcome, usage, timings };
}

/** The choice that is shown. */
export function shownOf(message) {
  return message.choices[message.shown] ?? newChoice();
}

export function textOf(message) {
  return shownOf(message).content;
}

export function hasText(message) {
  return sizeOf(message.choices) > 0 || message.choices.some((choice) => choice.calls.length > 0);
}

/** What is told below an answer that has ended. */
export function counters(message) {
  const { outcome, usage, timings } = message.end;
  const { finishReason, tokens } = shownOf(message);
  const number = (value) => value.toLocaleString();
  const thought = usage.reasoning_tokens ? `, ${number(usage.reasoning_tokens)} of them thinking` : "";
  const several = message.choices.length > 1 ? ` in ${message.choices.length} answers, ${number(tokens ?? 0)} in this one` : "";
  const list = [
    `${number(usage.completion_tokens)} tokens${several}${thought}`,
    `${number(usage.prompt_tokens)} in the prompt${usage.cached_tokens ? `, ${number(usage.cached_tokens)} cached` : ""}`,
  ];
  if (timings.first_token_s != null) list.push(`first after ${timings.first_token_s.toFixed(2)} s`);
  if (timings.tokens_per_s) list.push(`${timings.tokens_per_s.toFixed(1)} tokens/s`);
  if (outcome === "stopped") list.push("stopped");
  else if (finishReason === "length") list.push("cut at the token limit");
  return list;
}
