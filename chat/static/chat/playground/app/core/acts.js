// @ts-check
// What the reader does with conversations. Every act keeps what was there: what is edited or asked again is another turn beside it.
import { batch } from "../../../vendor/preact.js";
import { saysAnything, textOf } from "./answers.js";
import { api, ApiProblem, refusalOf } from "./api.js";
import * as app from "./app.js";
import { contentOf } from "./attached.js";
import { Chat } from "./chat.js";
import { t } from "./i18n.js";
import { freshId } from "./ids.js";
import { restorePartials } from "./partials.js";
import { requestOf } from "./requests.js";

/** @import { Turn } from "./tree.js" */
/** @import { Asked, ChatSettings, Choice, Content, DraftFile, Part, Queued, Role, TurnFacts } from "./types.js" */

/** @typedef {{settings?: ChatSettings, prefix?: string, run?: string, choice?: number, id?: string}} Asking how to ask, where it differs from the chat's settings */

// Asking.

/** Answers that were asked for in this tab since it was opened. @type {WeakSet<Turn>} */
export const askedHere = new WeakSet();

/**
 * Send what is written, or let it wait for the end of the running answer.
 * @param {Chat} open @param {string} text @param {DraftFile[]} [files]
 * @param {{comesBack?: boolean}} [options] `comesBack`: into the chat's message box, if it is refused as too long
 */
export function send(open, text, files = [], { comesBack = false } = {}) {
  const message = { id: freshId(), text, files };
  if (open.isBusy.value) {
    const { queue = [] } = open.draft.value;
    open.draft.value = { ...open.draft.value, text: "", files: [], queue: [...queue, message] };
  } else {
    open.draft.value = { ...open.draft.value, text: "", files: [] };
    const answer = sendMessage(open, message);
    if (comesBack) askedInBox.set(answer, message);
  }
}

/** Send a text beside what is written. @param {Chat} open @param {string} text */
export const say = (open, text) => sendMessage(open, { id: freshId(), text });

/** @param {Chat} open @param {Queued} message */
function sendMessage(open, { id, text, files }) {
  const last = open.path.value.at(-1);
  const question = open.add(newTurn("user", contentOf(text, files), last, { id, choice: last && open.shownChoice(last) }));
  // NOTE: two tabs may both send a message that waited. Its run and its answer have one name, so that there is one of each.
  return ask(open, question, [question], { run: `${id}-answer`, id: `${id}-a` });
}

/** Messages that come back, by their answers. @type {WeakMap<Turn, Queued>} */
const askedInBox = new WeakMap();

app.endListeners.add((open, answer) => {
  const message = askedInBox.get(answer);
  const { error } = answer.facts;
  if (message && error?.code === "context_length_exceeded") takeBack(open, answer, message, error.message);
});

/** Put a message that was too long into the box again, unless another is there; else it stays where it was refused. @param {Chat} open @param {Turn} answer @param {Queued} message @param {string} problem */
function takeBack(open, answer, { text, files = [] }, problem) {
  const question = open.find(answer.facts.parent);
  const { text: other, files: others = [], queue = [] } = open.draft.value;
  if (!question || open.siblings(answer).length > 1 || other || others.length || queue.length) return;
  drop(open, answer);
  drop(open, question);
  open.draft.value = { ...open.draft.value, text, files };
  open.refusal.value = { text, settings: open.settings.value, message: problem };
}

/**
 * Let the model answer what stands behind a turn.
 * @param {Chat} open
 * @param {Turn | undefined} parent
 * @param {Turn[]} unsaved turns that are saved with the answer
 * @param {Asking} [asking]
 */
function ask(open, parent, unsaved, { settings = open.settings.value, prefix, run = freshId(), choice, id } = {}) {
  /** @type {Asked} */
  const asked = { system: settings.system, fields: settings.parameters, ...(prefix === undefined ? {} : { prefix }) };
  const request = requestOf(parent ? open.pathTo(parent.id) : [], settings.model, asked, choice);
  const facts = newTurn("assistant", { choices: [], shown: 0 }, parent, { run, choice, id });
  const answer = open.add({ ...facts, state: "begun", model: settings.model, parameters: asked });
  askedHere.add(answer);
  open.head.value = answer.id;
  app.openChats.set(open.id, open);
  app.saveTurns(open, [...unsaved, answer]);
  app.runs.start(answer, request);
  if (!open.isTemporary && open === app.chat.value) address(open);
  return answer;
}

/** @param {Role} role @param {Content} content @param {Turn | undefined} parent @param {Partial<TurnFacts>} [more] @returns {TurnFacts} */
function newTurn(role, content, parent, more) {
  const facts = { id: freshId(), parent: parent?.id ?? "", role, state: /** @type {const} */ ("ended"), content, time: new Date().toISOString() };
  return { ...facts, ...Object.fromEntries(Object.entries(more ?? {}).filter(([, value]) => value !== undefined && value !== 0)) };
}

/** Send messages that waited, once nothing runs any more. @param {Chat} open */
function sendQueued(open) {
  const { queue = [], ...draft } = open.draft.value;
  const [next, ...later] = queue.filter(({ id }) => !open.find(id));
  if (!next || open.isBusy.value || app.isAway.value) return;
  open.draft.value = { ...draft, queue: later };
  sendMessage(open, next);
}

app.endListeners.add((open, turn) => {
  // After a failure or a stop the reader decides.
  if (turn.facts.state === "ended" && turn.facts.outcome === "finished") sendQueued(open);
});

/** Send the first of the messages that wait now. @param {Chat} open */
export const sendWaiting = sendQueued;

/** Take a message that waits out of the queue. @param {Chat} open @param {string} id @returns {Queued | undefined} */
export function withdraw(open, id) {
  const { queue = [] } = open.draft.value;
  open.draft.value = { ...open.draft.value, queue: queue.filter((message) => message.id !== id) };
  return queue.find((message) => message.id === id);
}

/** @param {Chat} open */
export function stop(open) {
  for (const turn of open.running.value) app.runs.stop(turn.facts.run ?? "");
}

// Turns beside others.

/** Keep what is written in the form of a turn, and show it there from now on. @param {Chat} open @param {Turn} turn @param {string} text @param {DraftFile[]} [files] left out: those of the turn */
export function keepEdit(open, turn, text, files) {
  open.draft.value = { ...open.draft.value, edit: { turn: turn.id, text, files } };
}

/** Close the form of a turn; what was written in it is gone. @param {Chat} open */
export function leaveEdit(open) {
  const { edit: left, ...draft } = open.draft.value;
  const isOfForm = left?.turn === app.editing.value;
  app.editing.value = "";
  if (isOfForm) open.draft.value = draft;
}

/** The turn whose form is open, as the draft has it, "" for none. @param {Chat} open */
export const editedTurn = (open) => open.find(open.draft.value.edit?.turn ?? "")?.id ?? "";

/**
 * Put an edited text beside a turn. A question is answered anew; of other turns the text alone is changed, so that an answer keeps its calls.
 * @param {Chat} open
 * @param {Turn} turn
 * @param {string} text
 * @param {DraftFile[]} [files] of a question
 */
export function edit(open, turn, text, files = []) {
  leaveEdit(open);
  const { role, choice, tool_call_id } = turn.facts;
  if (role === "assistant") return void changeAnswer(open, turn, { content: text });
  const edited = open.add(newTurn(role, contentOf(text, files), open.find(turn.facts.parent), { choice, tool_call_id }));
  if (role === "user") {
    ask(open, edited, [edited]);
  } else {
    app.saveTurns(open, [edited]);
    open.head.value = edited.id;
  }
  offerReturn(open, turn);
}

/** Put an answer beside a turn that differs from its shown choice in these fields. @param {Chat} open @param {Turn} turn @param {Partial<Choice>} changes */
function changeAnswer(open, turn, changes) {
  const { content = "", reasoning = "", calls = [] } = turn.choices[open.shownChoice(turn)] ?? {};
  const { model, parameters, choice, parent } = turn.facts;
  const answer = { choices: [{ content, reasoning, calls, ...changes }], shown: 0 };
  const edited = open.add(newTurn("assistant", answer, open.find(parent), { model, parameters, choice }));
  app.saveTurns(open, [edited]);
  open.head.value = edited.id;
  saveHead(open);
  offerReturn(open, turn);
  return edited;
}

/**
 * Ask again for an answer, with other settings if they are given; `prefix`: the text that it goes on from.
 * @param {Chat} open
 * @param {Turn} turn
 * @param {Partial<ChatSettings> & {prefix?: string}} [other]
 */
export function regenerate(open, turn, { prefix, ...other } = {}) {
  const parent = open.find(turn.facts.parent);
  const isEmpty = turn.facts.state === "failed" && !saysAnything(turn.choices) && !open.followers.get(turn.id)?.length;
  if (isEmpty) drop(open, turn);
  const answer = ask(open, parent, [], { settings: { ...open.settings.value, ...other }, prefix, choice: turn.facts.choice });
  if (!isEmpty) offerReturn(open, turn);
  return answer;
}

/**
 * Let the model go on from an answer, or from `prefix`, which may be a part of it.
 * @param {Chat} open
 * @param {Turn} turn
 * @param {string} [prefix]
 * @param {Partial<ChatSettings>} [other]
 */
export function continueFrom(open, turn, prefix, other = {}) {
  const parent = open.find(turn.facts.parent);
  const shown = textOf(turn.facts.content, open.shownChoice(turn));
  const answer = ask(open, parent, [], { settings: { ...open.settings.value, ...other }, prefix: prefix ?? shown, choice: turn.facts.choice });
  if (prefix !== undefined) offerReturn(open, turn);
  return answer;
}

/** Answer the calls of a turn, in their order, and let the model go on. @param {Chat} open @param {Turn} turn @param {{id: string, text: string}[]} results */
export function answerCalls(open, turn, results) {
  const choice = open.shownChoice(turn);
  let last = turn;
  const added = results.map(({ id, text }) => {
    last = open.add(newTurn("tool", partsIn(text) ?? text, last, { tool_call_id: id, choice: last === turn ? choice : undefined }));
    return last;
  });
  const { results: unsent = {}, ...draft } = open.draft.value;
  const sent = new Set(results.map(({ id }) => id));
  open.draft.value = { ...draft, results: Object.fromEntries(Object.entries(unsent).filter(([id]) => !sent.has(id))) };
  return ask(open, last, added);
}

/** The content parts that a result is, if it is a list of them. @param {string} text @returns {Part[] | null} */
export function partsIn(text) {
  if (!text.trimStart().startsWith("[")) return null;
  try {
    const parts = JSON.parse(text);
    const isParts = parts.length > 0 && parts.every((/** @type {any} */ part) => part?.type === "text" && typeof part.text === "string");
    return isParts ? parts : null;
  } catch {
    return null;
  }
}

/** Put an answer beside a turn that calls with other arguments. @param {Chat} open @param {Turn} turn @param {number} callIndex @param {string} text the arguments as JSON */
export function editCall(open, turn, callIndex, text) {
  const { calls } = turn.choices[open.shownChoice(turn)];
  return changeAnswer(open, turn, { calls: calls.map((call, at) => (at === callIndex ? { ...call, arguments: text } : call)) });
}

/** Remove a turn that nothing follows: an answer that never said anything, or a question that was refused. @param {Chat} open @param {Turn} turn */
function drop(open, turn) {
  open.drop(turn);
  if (!open.isTemporary) app.outbox.add({ method: "DELETE", path: `conversations/${open.id}/turns/${turn.id}`, note: { chat: open.id } });
}

/** Show one of the turns at a place. @param {Chat} open @param {Turn} turn */
export function pick(open, turn) {
  open.show(turn);
  app.notice.value = null;
  saveHead(open);
}

app.connectionListeners.add(saveSettings);

/** Show one of the choices of an answer, with which the chat goes on. @param {Chat} open @param {string} id of the turn @param {number} choice */
export function showChoice(open, id, choice) {
  const turn = open.find(id);
  if (turn) turn.shown.value = choice;
  open.draft.value = { ...open.draft.value, shown: { [id]: choice } };
}

/** Save which path is shown. @param {Chat} open */
export function saveHead(open) {
  if (open.isTemporary || !open.isStored) return;
  app.outbox.add({ method: "PATCH", path: `conversations/${open.id}`, body: { head: open.head.value }, note: { chat: open.id } });
}

/** Say that what was replaced is still there, and how to have it back. @param {Chat} open @param {Turn} turn */
function offerReturn(open, turn) {
  app.notice.value = { text: t("The earlier version is kept."), act: t("Undo"), run: () => pick(open, turn) };
}

// Settings.

/** @param {Chat} open @param {Partial<ChatSettings>} changes */
export function changeSettings(open, changes) {
  const settings = { ...open.settings.value, ...changes };
  open.settings.value = settings;
  if (open.isTemporary) return; // what is set in it is gone with it
  app.nextSettings.value = settings;
  if (!open.isStored) return;
  app.storage.write("tab", UNSAVED, { ...app.storage.read("tab", UNSAVED), [open.id]: settings });
  clearTimeout(settingsTimer);
  settingsTimer = setTimeout(saveSettings, 600);
}

/** Settings in the tab that the server does not have yet, by conversation. */
const UNSAVED = "settings";
/** @type {ReturnType<typeof setTimeout> | undefined} */
let settingsTimer;

/** Save settings that were changed, also before a reload. */
export async function saveSettings() {
  await app.outbox.flush(); // the conversation may be among it
  if (app.outbox.numWaiting.value) return;
  const unsaved = Object.entries(app.storage.read("tab", UNSAVED) ?? {});
  for (const [id, settings] of unsaved) {
    if (!(await changeFields(id, { settings }))) continue; // again when there is a connection
    const { [id]: saved, ...others } = app.storage.read("tab", UNSAVED) ?? {};
    // A change of the meantime has a timer of its own.
    if (JSON.stringify(saved) === JSON.stringify(settings)) app.storage.write("tab", UNSAVED, Object.keys(others).length ? others : null);
  }
}

/**
 * Change title, folder, pin, archive or settings of a conversation, whatever others have changed meanwhile. Return whether it was done.
 * @param {string} id
 * @param {object} fields
 */
export async function changeFields(id, fields) {
  let version = app.openChats.get(id)?.version ?? app.chatList.versionOf(id);
  for (let tries = 0; tries < 3; tries += 1) {
    try {
      version ??= (await api("GET", `conversations/${id}`)).version;
      const facts = await api("PATCH", `conversations/${id}`, { ...fields, version });
      app.openChats.get(id)?.adopt(facts);
      app.chatList.put(facts);
      app.tellTabs(id);
      return true;
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      if (error.code !== "conflict") {
        tell(error.message);
        return false;
      }
      version = undefined;
    }
  }
  return false;
}

/** @param {string} problem */
export function tell(problem) {
  app.notice.value = { text: problem, isProblem: true };
}

/** Do something with the server, and return whether it went well. A refusal is said. @param {() => Promise<unknown>} act */
export async function attempt(act) {
  const problem = await refusalOf(act);
  if (problem) tell(problem);
  return !problem;
}

// Which chat is shown.

/** @param {Chat} open */
function address(open) {
  const path = open.isStored ? `/c/${open.id}` : "/";
  if (location.pathname !== path) globalThis.history.pushState(null, "", path);
}

/** Show an empty chat; the one before stays. @param {{isTemporary?: boolean}} [options] */
export function newChat({ isTemporary = false } = {}) {
  numOpened += 1;
  const made = new Chat(app.settingsFrom(app.nextSettings.value), { isTemporary });
  const before = app.chat.value;
  show(made);
  if (!isTemporary) app.drafts.watch(made, null);
  if (location.pathname !== "/") globalThis.history.pushState(null, "", "/");
  if (before.isTemporary && !before.isEmpty.value) {
    app.notice.value = { text: t("The temporary chat is gone when you leave the page."), act: t("Go back to it"), run: () => show(before) };
  }
}

/** @param {Chat} open */
function show(open) {
  const before = app.chat.value;
  batch(() => {
    app.openChats.set(open.id, open);
    app.chat.value = open;
    app.editing.value = editedTurn(open);
    app.notice.value = null;
  });
  app.letGo(before);
}

/** Counts what the reader asked to see: the last click wins. */
let numOpened = 0;

/** Show a conversation by its id, and a turn of it if one is named. @param {string} id @param {string} [turnId] @returns {Promise<boolean>} */
export async function openChat(id, turnId) {
  const number = (numOpened += 1);
  const open = app.openChats.get(id) ?? (await load(id));
  if (!open) return false;
  if (number !== numOpened) {
    if (!app.openChats.has(id)) app.drafts.unwatch(id);
    return true;
  }
  show(open);
  const turn = turnId ? open.find(turnId) : undefined;
  if (turn && !open.path.value.includes(turn)) open.show(turn);
  address(open);
  resume(open);
  return true;
}

/** Make a conversation the one to go back to from compared ones, in the place of the empty chat. @param {string} id @returns {Promise<boolean>} */
export async function openBehind(id) {
  const number = numOpened;
  const open = await load(id);
  if (!open) return false;
  const empty = app.behind.value;
  if (number !== numOpened) {
    if (!app.openChats.has(id)) app.drafts.unwatch(id);
    return true;
  }
  if (empty) {
    app.openChats.set(id, open);
    app.behind.value = open;
    app.letGo(empty);
  } else {
    show(open); // the reader has gone back already
  }
  resume(open);
  return true;
}

/** Read the answers of a chat that go on, or send what has waited for their end. @param {Chat} open */
function resume(open) {
  app.attachAll(open);
  const last = open.path.value.at(-1)?.facts;
  if (last?.state === "ended" && last.outcome === "finished") sendQueued(open);
}

/** @param {string} id @returns {Promise<Chat | null>} */
async function load(id) {
  try {
    const facts = await api("GET", `conversations/${id}`);
    const unsaved = app.storage.read("tab", UNSAVED)?.[id];
    const open = new Chat(app.settingsFrom({ ...app.nextSettings.value, ...facts.settings, ...unsaved }), { id });
    open.adopt(facts);
    open.merge(facts.turns, () => false);
    open.head.value = facts.head || (facts.turns.at(-1)?.id ?? "");
    app.drafts.watch(open, facts.draft ?? null);
    restorePartials(app.storage, open);
    for (const [turn, number] of Object.entries(open.draft.value.shown ?? {})) showChoice(open, turn, number);
    return open;
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    tell(error.message);
    return null;
  }
}
