// @ts-check
// Drafts: what is written and not sent yet. They are kept in the tab at once, and on the server shortly after, so that other devices have them too.
import { effect } from "../../../vendor/preact.js";
import { api, refusalOf } from "./api.js";

/** @import { Chat } from "./chat.js" */
/** @import { PersonalStorage } from "./storage.js" */
/** @import { Draft, Queued } from "./types.js" */

const SAVE_MS = 600;
/** What the server takes of a draft; a longer one stays in the tab. */
const MAX_CHARS = 200_000;
const OF_NEW_CHAT = "draft";

export class Drafts {
  /** @param {PersonalStorage} storage */
  constructor(storage) {
    this.storage = storage;
    /** @type {Map<string, () => void>} chats whose drafts are kept, with what ends it */
    this.watched = new Map();
    /** @type {Map<string, {path: string, draft: Draft}>} */
    this.unsaved = new Map();
    addEventListener("pagehide", () => this.flush(true));
  }

  /**
   * Give a chat the later of the drafts in this tab and on the server, and keep it from now on.
   * @param {Chat} chat
   * @param {Draft | null} stored
   */
  watch(chat, stored) {
    if (this.watched.has(chat.id)) return;
    /** @type {Draft | null} */
    const here = this.storage.read("tab", keyOf(chat));
    const [latest, other] = (here?.at ?? 0) >= (stored?.at ?? 0) ? [here, stored] : [stored, here];
    if (latest) chat.draft.value = { ...latest, queue: joined(chat, latest.queue, other?.queue), results: { ...other?.results, ...latest.results } };
    let isFirst = true;
    this.watched.set(
      chat.id,
      effect(() => {
        const draft = chat.draft.value;
        if (!isFirst) this.#keep(chat, { ...draft, at: Date.now() });
        isFirst = false;
      }),
    );
  }

  /** The chat is shown no more; what was kept of its draft stays. @param {string} id */
  unwatch(id) {
    this.watched.get(id)?.();
    this.watched.delete(id);
  }

  /** @param {Chat} chat @param {Draft} draft */
  #keep(chat, draft) {
    if (chat.isTemporary) return;
    const name = keyOf(chat);
    this.storage.write("tab", name, draft);
    this.unsaved.set(name, { path: chat.isStored ? `conversations/${chat.id}/draft` : OF_NEW_CHAT, draft });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), SAVE_MS);
  }

  /** @param {boolean} [isLeaving] the page goes, and waits for no answer */
  async flush(isLeaving = false) {
    clearTimeout(this.timer);
    const unsaved = [...this.unsaved];
    this.unsaved.clear();
    if (this.storage.isClosed) return;
    const fitting = unsaved.filter(([, { draft }]) => JSON.stringify(draft).length <= MAX_CHARS);
    await Promise.all(fitting.map(([, { path, draft }]) => put(path, draft, isLeaving)));
  }

  /** The new chat has become a conversation: its draft is that of the next new chat no more. */
  forgetNew() {
    this.storage.write("tab", OF_NEW_CHAT, null);
    this.unsaved.set(OF_NEW_CHAT, { path: OF_NEW_CHAT, draft: { text: "", at: Date.now() } });
  }
}

/** Save a draft. What is refused stays in the tab, and the next change is another try. @param {string} path @param {Draft} draft @param {boolean} keepalive */
const put = (path, draft, keepalive) => refusalOf(() => api("PUT", path, draft, { keepalive }));

/** The messages that wait in either of two drafts, without those that were sent. @param {Chat} chat @param {Queued[]} [first] @param {Queued[]} [second] */
function joined(chat, first = [], second = []) {
  const known = new Set(first.map(({ id }) => id));
  return [...first, ...second.filter(({ id }) => !known.has(id))].filter(({ id }) => !chat.find(id));
}

/** @param {Chat} chat */
const keyOf = (chat) => (chat.isStored ? `draft.${chat.id}` : OF_NEW_CHAT);
