// @ts-check
// What the model is told: requests, made from the path to a turn.
import { callId, isAnswer } from "./answers.js";
import { sentContent } from "./attached.js";

/** @import { Turn } from "./tree.js" */
/** @import { Asked, Call, Parameters } from "./types.js" */

/**
 * @typedef {{role: string, content: any, tool_calls?: object[], tool_call_id?: string}} RequestMessage
 * @typedef {{model: string, messages: RequestMessage[]} & Parameters} ChatRequest
 */

/** What lets an answer go on from a text, and repeat it. */
const GOES_ON = { continue_final_message: true, add_generation_prompt: false, echo: true };

/** Return parameters with a field set in its place, or left out if the value is undefined. @param {Parameters} parameters @param {string} name @param {any} value @returns {Parameters} */
export function withField(parameters, name, value) {
  if (value !== undefined) return { ...parameters, [name]: value };
  const { [name]: _, ...others } = parameters;
  return others;
}

/**
 * Return the request that asks for what follows these turns.
 * @param {Turn[]} path
 * @param {string} model
 * @param {Asked} asked
 * @param {number} [choice] of the last turn, if it is an answer
 * @returns {ChatRequest}
 */
export function requestOf(path, model, { system, fields, prefix }, choice) {
  const told = path.map((turn, at) => messageOf(turn, at + 1 < path.length ? path[at + 1].facts.choice : choice));
  const messages = told.filter((message) => message !== null);
  if (system.trim()) messages.unshift({ role: "system", content: system });
  if (prefix === undefined) return { model, messages, ...fields };
  return { model, messages: [...messages, { role: "assistant", content: prefix }], ...fields, ...GOES_ON };
}

/**
 * Return a turn as a message of OpenAI's API, null for an answer that says nothing.
 * @param {Turn} turn
 * @param {number} [number] the choice that the next turn follows
 * @returns {RequestMessage | null}
 */
function messageOf({ facts }, number) {
  const { role, content } = facts;
  if (!isAnswer(content)) {
    const message = { role, content: sentContent(content) };
    return role === "tool" ? { ...message, tool_call_id: facts.tool_call_id } : message;
  }
  const choice = content.choices[number ?? content.shown];
  if (!choice || (!choice.content && choice.calls.length === 0)) return null;
  return choice.calls.length ? { role, content: choice.content || null, tool_calls: choice.calls.map(toolCall) } : { role, content: choice.content };
}

/** @param {Call} call @param {number} at */
const toolCall = (call, at) => ({ id: callId(call, at), type: "function", function: { name: call.name, arguments: call.arguments } });
