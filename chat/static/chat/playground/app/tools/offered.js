// @ts-check
// The tools of a chat: those that are offered to the model, and those that are switched off.
import * as acts from "../core/acts.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Parameters } from "../core/types.js" */

/** @typedef {{tool: any, isOn: boolean}} Entry */

/** Tools that are on and off, in their order. @param {Chat} open @returns {Entry[]} */
export function entriesOf(open) {
  const { parameters, tools_off: off = [] } = open.settings.value;
  /** @type {Entry[]} */
  const entries = (Array.isArray(parameters.tools) ? parameters.tools : []).map((/** @type {any} */ tool) => ({ tool, isOn: true }));
  for (const { at, tool } of off) entries.splice(at, 0, { tool, isOn: false });
  return entries;
}

/** @param {Chat} open @param {Entry[]} entries */
export function put(open, entries) {
  const tools = entries.filter(({ isOn }) => isOn).map(({ tool }) => tool);
  const off = entries.flatMap(({ tool, isOn }, at) => (isOn ? [] : [{ at, tool }]));
  const { tools: _, tool_choice: choice, parallel_tool_calls: parallel, ...others } = open.settings.value.parameters;
  const chosen = choice?.function?.name;
  const isKept = tools.length > 0 && choice !== undefined && (chosen === undefined || tools.some((tool) => tool?.function?.name === chosen));
  /** @type {Parameters} */
  const parameters = { ...others, ...(tools.length ? { tools } : {}), ...(isKept ? { tool_choice: choice } : {}), ...(tools.length && parallel !== undefined ? { parallel_tool_calls: parallel } : {}) };
  acts.changeSettings(open, { parameters, tools_off: off });
}
