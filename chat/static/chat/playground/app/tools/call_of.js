// @ts-check
import { callId } from "../core/answers.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */
/** @import { Call } from "../core/types.js" */

/** The call that a tool's result answers. @param {Chat} open @param {Turn} turn @returns {Call | undefined} */
export function callOf(open, turn) {
  const { tool_call_id: id, choice } = turn.facts;
  let number = choice;
  for (let before = open.find(turn.facts.parent); before; before = open.find(before.facts.parent)) {
    const { choices, facts } = before;
    if (facts.role === "assistant") return choices[number ?? 0]?.calls.find((call, at) => callId(call, at) === id);
    number = facts.choice;
  }
  return undefined;
}

/** The result that a call got on the shown path. @param {Chat} open @param {Turn} turn @param {string} id of the call */
export function resultOf(open, turn, id) {
  const path = open.path.value;
  for (let at = path.indexOf(turn) + 1; at > 0 && path[at]?.facts.role === "tool"; at += 1) if (path[at].facts.tool_call_id === id) return path[at];
  return undefined;
}

/** The definition of a tool that an answer was offered. @param {Turn} turn @param {string} name @returns {any} */
export function definitionFor(turn, name) {
  const tools = turn.facts.parameters?.fields?.tools;
  return Array.isArray(tools) ? tools.find((tool) => tool?.function?.name === name)?.function : undefined;
}
