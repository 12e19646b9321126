// @ts-check
// The state of the page, made once. Views read its signals; acts.js changes it.
import { batch, computed, effect, signal } from "../../../vendor/preact.js";
import { keptContent, saysAnything } from "./answers.js";
import { api, ApiProblem } from "./api.js";
import { Chat } from "./chat.js";
import { Connection } from "./connection.js";
import { Drafts } from "./drafts.js";
import { ChatList } from "./chat_list.js";
import { t } from "./i18n.js";
import { isObject } from "./json.js";
import { Outbox } from "./outbox.js";
import { page } from "./page.js";
import { keepPartials } from "./partials.js";
import { Runs } from "./runs.js";
import { PersonalStorage } from "./storage.js";
import { Speaker } from "./speaker.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ConnectionState } from "./connection.js" */
/** @import { Write } from "./outbox.js" */
/** @import { Turn } from "./tree.js" */
/** @import { ChatSettings, Message, ModelFacts, Problem } from "./types.js" */

export const storage = new PersonalStorage(page.user, () => location.reload());

/** @type {Signal<ModelFacts[]>} */
export const models = signal(page.models);
/** @type {Signal<ConnectionState>} */
export const connectionState = signal("connecting");
/** The connection was there, and is not. */
export const isAway = signal(false);

/** A line above the composer that says what was just done, with a button that takes it back. @type {Signal<{text: string, act?: string, run?: () => void, isProblem?: boolean} | null>} */
export const notice = signal(null);

/** What is asked for with the next new chat, as the last one had it. */
export const nextSettings = signal(settingsFrom(storage.read("tab", "next") ?? page.state.next));

/** @type {Signal<Chat>} */
export const chat = signal(new Chat(nextSettings.value));
/** Chats that are shown or whose runs are read, by their ids; several at once where they are compared. @type {Map<string, Chat>} */
export const openChats = new Map([[chat.value.id, chat.value]]);

/** The chat to go back to from compared ones. @type {Signal<Chat | null>} */
export const behind = signal(null);

/** The turn whose text is edited, "" for none. */
export const editing = signal("");

export const speaker = new Speaker();
export const chatList = new ChatList();
export const drafts = new Drafts(storage);
export const outbox = new Outbox(storage, { onDone: saved, onRefused: refused });
export const connection = new Connection({ onState: connectionChanged, onMessage: (message) => runs.receive(message) });
export const runs = new Runs(connection, page.max_bytes, { onText: said, onEnd: ended, onLost: lost });

/** The model of the open chat. @type {import("../../../vendor/preact.js").ReadonlySignal<ModelFacts | undefined>} */
export const model = computed(() => modelOf(chat.value.settings.value.model));

/** @param {string} name */
export const modelOf = (name) => models.value.find(({ id }) => id === name);

/** Tells the other tabs of this person which conversation has changed. */
const tabs = "BroadcastChannel" in globalThis ? new BroadcastChannel(`lightcone.${page.user}`) : null;
tabs?.addEventListener("message", ({ data }) => {
  if (data.chat) changedElsewhere(data.chat);
  else pageState = { ...pageState, ...data.state };
});

/** Called when the connection is there again. @type {Set<() => void>} */
export const connectionListeners = new Set([() => void saveState()]);

/** Called with each turn that has ended; queued messages wait for it. @type {Set<(chat: Chat, turn: Turn) => void>} */
export const endListeners = new Set();

/**
 * Settings for a new chat from what was kept, with a model that is served.
 * @param {Partial<ChatSettings> | undefined} kept
 * @returns {ChatSettings}
 */
export function settingsFrom(kept) {
  const served = page.models.some(({ id }) => id === kept?.model);
  const fallback = page.models.find(({ is_default }) => is_default) ?? page.models[0];
  const name = (served ? kept?.model : fallback?.id) ?? "";
  const { system, parameters, tools_off: off } = kept ?? {};
  return { model: name, system: typeof system === "string" ? system : "", parameters: isObject(parameters) ? parameters : {}, tools_off: Array.isArray(off) ? off.filter(isObject) : [] };
}

/** @param {Turn} turn @returns {Chat | undefined} */
const chatOf = (turn) => [...openChats.values()].find((open) => open.find(turn.id) === turn);

/** Chats to let go of once the server has all of them, by id. @type {Set<string>} */
const leaving = new Set();

/** Let go of a stored chat that is not shown, unless it is still answered: once it is saved. Its unsaved draft is still sent. @param {Chat} open */
export function letGo(open) {
  leaving.delete(open.id);
  if (open === chat.value || open === behind.value || open.isTemporary || open.isBusy.value) return;
  if (outbox.holds(open.id)) {
    leaving.add(open.id);
    return;
  }
  openChats.delete(open.id);
  drafts.unwatch(open.id);
}

outbox.numWaiting.subscribe(() => {
  for (const id of [...leaving]) {
    const open = openChats.get(id);
    if (open) letGo(open);
    else leaving.delete(id);
  }
});

// What the page has kept for the user, beside the conversations.

/** @type {Record<string, any>} */
let pageState = page.state;
/** What of it the server does not have yet. @type {Record<string, unknown>} */
let unsavedState = {};
/** @type {ReturnType<typeof setTimeout> | undefined} */
let stateTimer;

/** @param {string} name */
export const readState = (name) => pageState[name];

/** Keep a value for this user, on all devices. @param {string} name @param {unknown} value */
export function writeState(name, value) {
  pageState = { ...pageState, [name]: value };
  unsavedState = { ...unsavedState, [name]: value };
  tabs?.postMessage({ state: { [name]: value } });
  clearTimeout(stateTimer);
  stateTimer = setTimeout(saveState, 600);
}

/** Save what was changed; other names are left to the other devices. @param {boolean} [isLeaving] the page goes, and waits for no answer */
async function saveState(isLeaving = false) {
  clearTimeout(stateTimer);
  const changes = unsavedState;
  if (storage.isClosed || Object.keys(changes).length === 0) return;
  unsavedState = {};
  await saveNames(changes, isLeaving);
}

/** @param {Record<string, unknown>} changes @param {boolean} isLeaving */
async function saveNames(changes, isLeaving) {
  try {
    // NOTE: browsers send no more than 64 KiB for a page that goes.
    await api("PATCH", "state", changes, { keepalive: isLeaving });
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    // What did not reach the server is tried again; what is too large is not, and holds back no other name.
    if (error.status !== 413) unsavedState = { ...changes, ...unsavedState };
    else if (Object.keys(changes).length > 1) for (const [name, value] of Object.entries(changes)) await saveNames({ [name]: value }, isLeaving);
    else notice.value = { text: t("This could not be saved: {problem}", { problem: error.message }), isProblem: true };
  }
}

addEventListener("pagehide", () => {
  saveState(true);
  keepPartials(storage, openChats.values());
});

let isFirst = true;
effect(() => {
  const next = nextSettings.value;
  if (!isFirst) {
    storage.write("tab", "next", next);
    writeState("next", next);
  }
  isFirst = false;
});

// Saving.

/** @param {Chat} open @param {Turn} turn */
function saveTurn(open, turn) {
  if (open.isTemporary) return;
  const { id, created_at: _, ...facts } = turn.facts;
  const kept = { ...facts, content: keptContent(facts.content) };
  const fields = Object.fromEntries(Object.entries(kept).filter(([name, value]) => value !== undefined && value !== null && (name !== "run" || value)));
  outbox.add({ method: "PUT", path: `conversations/${open.id}/turns/${id}`, body: fields, note: { chat: open.id } });
}

/** What the server takes of turns at once. */
const MAX_TURNS_AT_ONCE = 64;
/** Bytes that a value takes in a body, with what stands around it. @param {unknown} value */
const roomFor = (value) => new TextEncoder().encode(JSON.stringify(value)).length + 16;

/** Save new turns, the conversation with them: in one go, if they are not too many. @param {Chat} open @param {Turn[]} turns */
export function saveTurns(open, turns) {
  if (open.isTemporary) return;
  if (!open.isStored) {
    open.isStored = true;
    drafts.forgetNew();
  }
  const sent = turns.map(({ facts: { created_at: _, ...facts } }) => ({ ...facts, content: keptContent(facts.content) }));
  const conversation = { title: open.title.value || undefined, folder: open.folder.value || undefined, settings: open.settings.value };
  for (const some of portionsOf(sent, page.max_body_bytes - roomFor({ conversation, turns: [] }))) {
    outbox.add({ method: "POST", path: `conversations/${open.id}/turns`, body: { conversation, turns: some }, note: { chat: open.id } });
  }
}

/** Divide turns by what a request may hold. @template T @param {T[]} turns @param {number} maxBytes @returns {T[][]} */
function portionsOf(turns, maxBytes) {
  /** @type {T[][]} */
  const portions = [];
  let taken = 0;
  for (const turn of turns) {
    const size = roomFor(turn);
    const last = portions.at(-1);
    if (last && last.length < MAX_TURNS_AT_ONCE && taken + size <= maxBytes) last.push(turn);
    else {
      portions.push([turn]);
      taken = 0;
    }
    taken += size;
  }
  return portions;
}

/** @param {Write} write @param {any} answer */
function saved({ note }, answer) {
  const id = /** @type {{chat?: string} | undefined} */ (note)?.chat;
  if (!id) return;
  const facts = answer?.conversation;
  if (facts) {
    openChats.get(id)?.adopt(facts);
    chatList.put(facts);
  }
  tellTabs(id);
}

/** A conversation has changed: the other tabs read it again. @param {string} id */
export const tellTabs = (id) => tabs?.postMessage({ chat: id });

/** @param {Write} write @param {ApiProblem} problem */
function refused({ note }, problem) {
  const id = /** @type {{chat?: string} | undefined} */ (note)?.chat;
  if (problem.code === "not_found" && id && chatList.deleted.has(id)) return;
  if (problem.code === "conflict") return; // another tab was first
  notice.value = { text: t("This could not be saved: {problem}", { problem: problem.message }), isProblem: true };
}

/** Another tab has saved something. @param {string} id */
async function changedElsewhere(id) {
  const open = openChats.get(id);
  if (open?.isStored) await reread(open);
  chatList.refreshSoon();
}

/** Take over what the server has of a chat by now, and read the runs that go on, but for one that is lost. @param {Chat} open @param {Turn} [lost] */
export async function reread(open, lost) {
  try {
    const facts = await api("GET", `conversations/${open.id}`);
    if (openChats.get(open.id) !== open) return; // it was let go meanwhile
    batch(() => {
      const wasAtEnd = open.head.value;
      open.adopt(facts);
      const added = open.merge(facts.turns, (run) => runs.isLive(run));
      // What others add behind the shown turn is shown.
      if (added.length && open.pathTo(facts.head).some((turn) => turn.id === wasAtEnd)) open.head.value = facts.head;
    });
    attachAll(open, lost);
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
  }
}

/** @param {Chat} open @param {Turn} [lost] */
export function attachAll(open, lost) {
  for (const turn of open.running.value) if (turn !== lost) runs.attach(turn);
}

// What the connection and the runs tell.

/** @param {ConnectionState} state */
function connectionChanged(state) {
  batch(() => {
    connectionState.value = state;
    isAway.value = state === "lost" || (isAway.value && state !== "ready");
  });
  if (state !== "ready") return;
  runs.connected();
  outbox.flush();
  for (const listener of connectionListeners) listener();
}

const PAINT_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 250 : 0;
/** @type {Set<Turn>} */
const painting = new Set();

/** Something was said: draw it once for each frame. @param {Turn} turn @param {Message} message */
function said(turn, message) {
  if (message.choice === turn.shown.value && chat.value.find(turn.id)) speaker.feed(message.text, turn);
  if (painting.has(turn)) return;
  painting.add(turn);
  const paint = () => {
    painting.delete(turn);
    turn.change();
  };
  if (PAINT_MS || document.hidden) setTimeout(paint, PAINT_MS || 250);
  else requestAnimationFrame(paint);
}

/** @param {Turn} turn */
function ended(turn) {
  const open = chatOf(turn);
  if (!open) return;
  saveTurn(open, turn);
  for (const listener of endListeners) listener(open, turn);
  letGo(open);
}

/** The run cannot be read any more: the server may have read its log to the end. @param {Turn} turn @param {Problem} [problem] */
async function lost(turn, problem) {
  const open = chatOf(turn);
  if (!open) return;
  if (!open.isTemporary) {
    await outbox.flush();
    await reread(open, turn);
  }
  if (!turn.isRunning) return letGo(open);
  const message = t("The answer broke off: its run has left no trace. What was shown of it is kept.");
  turn.change({ state: "failed", error: problem ?? { message, code: "not_resumable", param: null } });
  // NOTE: where the server knows the run it ends the turn itself, and may know more of it. Of a run without a trace there is only what was shown.
  if (!problem && saysAnything(turn.choices)) saveTurn(open, turn);
  for (const listener of endListeners) listener(open, turn);
  letGo(open);
}
