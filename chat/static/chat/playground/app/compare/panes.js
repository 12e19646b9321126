// @ts-check
// Chats that are compared: two to four, each with settings of its own, that are asked the same. They are temporary until one is made a chat.
// The pane that has the focus is the open chat of the page, so that the panel of parameters and the keys mean it.
import { batch, computed, signal } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { Chat } from "../core/chat.js";
import { t } from "../core/i18n.js";
import { freshId } from "../core/ids.js";
import { withField } from "../core/requests.js";
import { togglePanel } from "../view/layers.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { Turn } from "../core/tree.js" */
/** @import { ChatSettings, Draft, DraftFile, Queued } from "../core/types.js" */

export const MAX_PANES = 4;

/** @typedef {{id: string, chat: Chat, isDetached: Signal<boolean>}} Pane `isDetached`: it is asked by itself */

/** From left to right. @type {Signal<Pane[]>} */
export const panes = signal([]);
/** Whether chats are compared, side by side: while one of them is the open one. */
export const comparing = computed(() => panes.value.some(({ chat }) => chat === app.chat.value));
/** Whether the names of models are hidden until the reader has voted. */
export const isBlind = signal(false);
export const scrollsInStep = signal(true);

/** What holds the draft that goes to all. It never has turns of its own: those and the settings, which it is counted by, are the first asked pane's. */
class SharedDraft extends Chat {
  constructor() {
    super(app.nextSettings.peek(), { isTemporary: true });
    const own = this.settings;
    this.running = computed(() => attached().flatMap(({ chat }) => chat.running.value));
    this.settings = /** @type {Signal<ChatSettings>} */ (computed(() => (first() ?? { settings: own }).settings.value));
    this.head = /** @type {Signal<string>} */ (computed(() => first()?.head.value ?? ""));
    this.path = computed(() => first()?.path.value ?? []);
  }

  /** @param {Turn} turn */
  shownChoice(turn) {
    return first()?.shownChoice(turn) ?? 0;
  }
}

export const shared = signal(new SharedDraft());
const attached = () => panes.value.filter(({ isDetached }) => !isDetached.value);
const first = () => (attached()[0] ?? panes.value[0])?.chat;

/** Which panes are asked with the next message. */
export const asked = computed(attached);
/** @param {ChatSettings} settings @returns {Pane} */
const newPane = (settings) => ({ id: freshId(), chat: new Chat(copyOf(settings), { isTemporary: true }), isDetached: signal(false) });

/** @param {ChatSettings} settings @returns {ChatSettings} */
const copyOf = (settings) => structuredClone(settings);

/** Compare, beginning with the settings of a chat; again: back to that chat. @param {Chat} open */
export function startComparing(open) {
  if (comparing.value) return endComparing();
  const before = panes.value;
  const settings = open.settings.value;
  const left = newPane(settings);
  batch(() => {
    setBehind(open);
    isBlind.value = false;
    panes.value = [left, newPane({ ...settings, model: otherModel([settings.model]) })];
    shared.value = new SharedDraft();
    shared.value.draft.value = { text: open.draft.value.text, files: open.draft.value.files ?? [] };
    offer(before);
    app.editing.value = "";
    activate(left);
  });
}

/** A model that is not among these, if there is one. @param {string[]} used */
function otherModel(used) {
  const models = app.models.value.map(({ id }) => id);
  return models.find((id) => !used.includes(id)) ?? used[0];
}

/** Choose the chat to go back to after comparing. @param {Chat | null} open */
function setBehind(open) {
  const before = app.behind.value;
  app.behind.value = open;
  if (before) app.letGo(before);
}

/** Go back to the chat that was there; the panes stay until others are compared. */
export function endComparing() {
  const origin = app.behind.value;
  if (!origin) return acts.newChat();
  batch(() => {
    app.chat.value = origin;
    setBehind(null);
    app.editing.value = acts.editedTurn(origin);
    app.notice.value = canGoBack() ? { text: t("The compared chats stay in this tab until you compare others."), act: t("Go back to them"), run: goBack } : null;
  });
}

/** @param {Pane[]} list */
const hasTurns = (list) => list.some(({ chat }) => !chat.isEmpty.value);

/** Whether there are panes to go back to. */
export const canGoBack = () => !comparing.value && hasTurns(panes.value);

export function goBack() {
  if (!canGoBack()) return;
  setBehind(app.chat.value);
  activate(panes.value[0]);
}

/** Offer to have panes back that others took the place of. @param {Pane[]} before */
function offer(before) {
  const run = () => {
    const others = panes.value;
    batch(() => {
      panes.value = before;
      activate(before[0]);
      offer(others);
    });
  };
  app.notice.value = hasTurns(before) ? { text: t("This is another comparison."), act: t("Go back to the one before"), run } : null;
}

/** @param {Pane} pane */
export function activate(pane) {
  if (app.chat.value !== pane.chat) app.chat.value = pane.chat;
}

/** Give the focus to a pane. @param {number} at */
export function focusPane(at) {
  const node = document.getElementById(`pane-${at + 1}`);
  node?.focus({ preventScroll: true });
  node?.scrollIntoView({ block: "nearest", inline: "start" });
}

// Asking.

/** Ask all panes that are not detached; each run is a request of its own. @param {string} text @param {DraftFile[]} [files] */
export function sendToAll(text, files = []) {
  const to = asked.value;
  if (to.length === 0) {
    app.notice.value = { text: t("Every pane is detached: attach one, or write in its own box."), isProblem: true };
    return;
  }
  shared.value.draft.value = { text: "" };
  const draft = app.behind.value?.draft; // it has a copy of what was written before
  if (draft?.value.text.trim() === text) draft.value = { ...draft.value, text: "", files: [] };
  for (const { chat } of to) acts.send(chat, text, files);
}

/** Take back what a pane has not been asked yet; it is in the message box again, before what is written there. @param {Pane} pane */
export function withdrawAll({ chat }) {
  for (const { id } of (chat.draft.value.queue ?? []).toReversed()) {
    const message = acts.withdraw(chat, id);
    if (message) putBack(shared.value.draft, message);
  }
}

/** Put a message before what is written, unless another pane has given it back. @param {Signal<Draft>} draft @param {Queued} message */
function putBack(draft, { text, files = [] }) {
  const { text: written, files: others = [] } = draft.value;
  const isThere = `\n\n${written}\n\n`.includes(`\n\n${text}\n\n`);
  const missing = files.filter((file) => !others.some((other) => other.name === file.name && other.text === file.text && other.media?.url === file.media?.url));
  draft.value = { ...draft.value, text: isThere ? written : [text, written].filter(Boolean).join("\n\n"), files: [...missing, ...others] };
}

export const stopAll = () => panes.value.forEach(({ chat }) => acts.stop(chat));

/** The last answer of a pane, if it has one. @param {Pane} pane @returns {Turn | undefined} */
export const lastAnswer = ({ chat }) => chat.path.value.findLast((turn) => turn.facts.role === "assistant");

// The panes.

/** @param {number} at */
export const paneName = (at) => t("Pane {n}", { n: at + 1 });

/** Change the settings of a pane; other chats do not take them over. @param {Pane} pane @param {Partial<ChatSettings>} changes */
export function changePane(pane, changes) {
  pane.chat.settings.value = { ...pane.chat.settings.value, ...changes };
}

/** Set a parameter of a pane, or leave it to the model. @param {Pane} pane @param {string} name @param {unknown} value undefined: not set */
export function setParameter(pane, name, value) {
  changePane(pane, { parameters: withField(pane.chat.settings.value.parameters, name, value) });
}

/** Give all others the parameters and the system prompt of a pane; each keeps its model. @param {Pane} pane */
export function copySettingsToAll(pane) {
  const { system, parameters } = copyOf(pane.chat.settings.value);
  for (const other of panes.value) if (other !== pane) changePane(other, { system, parameters: structuredClone(parameters) });
  app.notice.value = { text: t("All panes have these parameters and this system prompt.") };
}

export function addPane() {
  if (panes.value.length >= MAX_PANES) return;
  const last = /** @type {Pane} */ (panes.value.at(-1));
  const used = panes.value.map(({ chat }) => chat.settings.value.model);
  const settings = last.chat.settings.value;
  panes.value = [...panes.value, newPane({ ...settings, model: otherModel([settings.model, ...used]) })];
}

/** Change places with the next pane, or the last with the first. @param {Pane} pane */
export function swap(pane) {
  const order = [...panes.value];
  const at = order.indexOf(pane);
  const other = (at + 1) % order.length;
  [order[at], order[other]] = [order[other], order[at]];
  panes.value = order;
}

/** @param {Pane} pane */
export function closePane(pane) {
  const before = panes.value;
  acts.stop(pane.chat);
  if (before.length === 1) return endComparing();
  leave(pane);
  requestAnimationFrame(() => focusPane(Math.min(before.indexOf(pane), before.length - 2)));
  app.notice.value = { text: t("The pane is closed."), act: t("Undo"), run: () => (panes.value = before) };
}

/** @param {Pane} pane */
function leave(pane) {
  const others = panes.value.filter((other) => other !== pane);
  batch(() => {
    panes.value = others;
    if (app.chat.value === pane.chat && others.length) activate(others[0]);
  });
}

/** Make a pane a chat that is stored, and open it. @param {Pane} pane */
export async function promote(pane) {
  const { chat } = pane;
  const others = panes.value.filter((other) => other !== pane);
  chat.isTemporary = false;
  chat.isStored = true; // it was never the new chat, whose draft stays
  app.openChats.set(chat.id, chat);
  app.drafts.watch(chat, null);
  app.saveTurns(chat, [...chat.turns.values()]);
  acts.saveHead(chat);
  panes.value = others;
  await acts.openChat(chat.id);
  setBehind(null);
  if (others.length) app.notice.value = { text: t("The pane is a chat of its own now."), act: t("Go back to the others"), run: goBack };
}

/** Hide the names of models, and mix the panes so that their places say nothing. @param {boolean} isHidden */
export function setBlind(isHidden) {
  batch(() => {
    isBlind.value = isHidden;
    if (!isHidden) return;
    togglePanel(false);
    panes.value = shuffled(panes.value);
  });
}

/** @template T @param {T[]} list @returns {T[]} */
function shuffled(list) {
  const mixed = [...list];
  for (let at = mixed.length - 1; at > 0; at -= 1) {
    const other = Math.floor(Math.random() * (at + 1));
    [mixed[at], mixed[other]] = [mixed[other], mixed[at]];
  }
  return mixed;
}
