// @ts-check
// A title for a chat by its model. It is asked as in a temporary chat: nothing of it is stored, and it is counted and logged as any request.
import * as acts from "../core/acts.js";
import { textOf } from "../core/answers.js";
import { api, ApiProblem } from "../core/api.js";
import * as app from "../core/app.js";
import { typedAndFiles } from "../core/attached.js";
import { Chat } from "../core/chat.js";
import { t } from "../core/i18n.js";

/** @import { Turn } from "../core/tree.js" */
/** @import { ChatFacts } from "../core/types.js" */

export const MAX_TITLE_CHARS = 200; // as the server has it
const MAX_QUESTION_CHARS = 1500;
const MAX_ANSWER_CHARS = 500;
const PARAMETERS = { max_tokens: 32, temperature: 0, reasoning_effort: "none" };
const AROUND = /^(?:[\s"'“”„‘’«»`*#]|(?:title|titel)\s*:)+|[\s"'“”„‘’«»`*]+$/gi;

/** The chat in which a title is asked for. @param {ChatFacts} facts of the one that gets it */
export const titleChat = ({ settings }) => new Chat({ model: app.settingsFrom(settings).model, system: "", parameters: PARAMETERS }, { isTemporary: true });

/**
 * Ask for a title. Both are empty where that was stopped.
 * @param {Chat} asking
 * @param {ChatFacts} facts
 * @param {AbortSignal} signal
 * @returns {Promise<{title: string, problem: string}>}
 */
export async function askTitle(asking, facts, signal) {
  try {
    const question = questionFor(await pathOf(facts));
    if (signal.aborted) return { title: "", problem: "" };
    if (!question) return { title: "", problem: t("This chat has no question yet.") };
    const answer = await answerOf(asking, question, signal);
    if (signal.aborted) return { title: "", problem: "" };
    if (answer.facts.error) return { title: "", problem: answer.facts.error.message };
    const title = titleIn(textOf(answer.facts.content));
    return { title, problem: title ? "" : t("The model suggests no title.") };
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    return { title: "", problem: error.message };
  }
}

/** The turns that a conversation shows. @param {ChatFacts} facts @returns {Promise<Turn[]>} */
async function pathOf({ id, settings }) {
  const open = app.openChats.get(id);
  if (open) return open.path.value;
  const { turns, head } = await api("GET", `conversations/${id}`);
  const read = new Chat(app.settingsFrom(settings), { id });
  read.merge(turns, () => false);
  return read.pathTo(head || turns.at(-1)?.id);
}

/** What the model is asked, "" where there is nothing to make a title of. @param {Turn[]} path */
function questionFor(path) {
  const first = path.find(({ facts }) => facts.role === "user");
  if (!first) return "";
  const { text, files } = typedAndFiles(first.facts);
  const asked = text || files.map(({ name }) => name).join(", ");
  const said = textOf(path.find(({ facts }) => facts.role === "assistant")?.facts.content);
  const parts = [firstOf(asked, MAX_QUESTION_CHARS), firstOf(said, MAX_ANSWER_CHARS)].filter(Boolean);
  return `${parts.join("\n\n")}\n\n---\n\n${t("Write a title of at most six words for the text above, in its language. Answer with the title alone.")}`;
}

/** @param {Chat} asking @param {string} question @param {AbortSignal} signal @returns {Promise<Turn>} the answer, which has ended */
function answerOf(asking, question, signal) {
  return new Promise((done) => {
    const ended = (/** @type {Chat} */ open, /** @type {Turn} */ turn) => {
      if (open !== asking) return;
      app.endListeners.delete(ended);
      app.openChats.delete(asking.id);
      done(turn);
    };
    app.endListeners.add(ended);
    acts.say(asking, question);
    signal.addEventListener("abort", () => acts.stop(asking));
  });
}

/** The title in what a model has said: its first line, without what stands around it. @param {string} said */
function titleIn(said) {
  const lines = said.split("\n").map((line) => line.replace(AROUND, ""));
  return firstOf((lines.find(Boolean) ?? "").replace(/\s+/g, " "), MAX_TITLE_CHARS).trim();
}

/** The first characters of a text, none of them cut in two: the server takes no half of one. @param {string} text @param {number} num */
const firstOf = (text, num) => [...text].slice(0, num).join("");
