// @ts-check
// Leads to a field of the panel, wherever it is.
import { signal } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { page } from "../core/page.js";
import { togglePanel } from "../view/layers.js";

/** @import { Chat } from "../core/chat.js" */

/** @typedef {{param: string, message: string}} FieldProblem `param` is "json" where the text of the JSON tab is wrong */

/** The field that is to have the focus as soon as it is drawn. */
export const wantedField = signal("");

const TABS = { tools: "tools", response_format: "output", structured_outputs: "output", json: "json" };
const NOT_HERE = new Set(["model", "messages"]);

/** Open the panel and focus a field, and return whether the panel has it. @param {string} param such as `stop[3]` */
function focusField(param) {
  const name = /^\w*/.exec(param)?.[0] ?? "";
  if (name !== "json" && name !== "system" && (NOT_HERE.has(name) || !page.fields.includes(name))) return false;
  wantedField.value = name;
  togglePanel(true, TABS[/** @type {keyof typeof TABS} */ (name)] ?? "parameters");
  return true;
}

/** Each finds what is wrong with a field, null if nothing is. The form adds its own once it is loaded. @type {Set<(open: Chat) => FieldProblem | null>} */
export const problemFinders = new Set();

/** Whether a field is wrong, so that nothing can be sent; it is said and shown. @param {Chat} open */
export function isHeldBack(open) {
  const problem = [...problemFinders].map((find) => find(open)).find((found) => found);
  if (!problem) return false;
  app.notice.value = { text: problem.message, isProblem: true };
  focusField(problem.param);
  return true;
}

app.endListeners.add((open, { facts }) => {
  if (open === app.chat.value && facts.state === "failed" && facts.error?.param) focusField(facts.error.param);
});
