// @ts-check
// The requests behind what the page shows: that of an answer, and the one that would be sent now.
import { contentOf, sentContent } from "../core/attached.js";
import { requestOf } from "../core/requests.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { ChatRequest } from "../core/requests.js" */
/** @import { Turn } from "../core/tree.js" */

/** The request that an answer was asked for with. @param {Chat} open @param {Turn} turn @returns {ChatRequest} */
export function requestBehind(open, turn) {
  const { parent, model = open.settings.value.model, parameters = { system: "", fields: {} }, choice } = turn.facts;
  return requestOf(open.pathTo(parent), model, parameters, choice);
}

/** The request that would be sent now, with `text` where nothing is written. @param {Chat} open @param {string} [text] @returns {ChatRequest} */
export function requestOfDraft(open, text = "") {
  const path = open.path.value;
  const last = path.at(-1);
  const { model, system, parameters } = open.settings.value;
  const request = requestOf(path, model, { system, fields: parameters }, last && open.shownChoice(last));
  const draft = open.draft.value;
  const content = sentContent(contentOf(draft.text.trim(), draft.files)) || text;
  if (content) request.messages.push({ role: "user", content });
  return request;
}
