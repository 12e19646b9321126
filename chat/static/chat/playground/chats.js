// The chats of this tab: the one that is shown, and earlier ones, which stay until the tab is closed or their person signs out.
import { Conversation } from "./conversation.js";

const SAVE_MS = 1000;
const NAME = "chat.";

export class Chats {
  /** `onFull(isFull)`: whether the browser's storage refuses to keep one of the chats. */
  constructor(store, onFull) {
    this.store = store;
    this.onFull = onFull;
    this.known = new Map();
    this.unsaved = new Set();
    this.timer = null;
    for (const name of store.names(NAME)) {
      const plain = store.read(name);
      if (plain?.messages?.length) this.known.set(plain.id, new Conversation(plain));
      else store.forget(name);
    }
    this.current = this.known.get(store.read("current")) ?? new Conversation();
  }

  get all() {
    return [...this.known.values()];
  }

  /** The others, the latest first. */
  get earlier() {
    return this.all.filter((chat) => chat !== this.current).sort((a, b) => b.changedAt - a.changedAt);
  }

  /** An empty chat takes the place of the present one, which stays. */
  begin() {
    this.show(new Conversation());
  }

  show(chat) {
    this.current = chat;
    this.store.write("current", chat.id);
  }

  /** Keep what changes by and by: at most once a second. */
  saveSoon(chat) {
    if (!this.known.has(chat.id)) return; // forgotten meanwhile
    this.unsaved.add(chat);
    this.timer ??= setTimeout(() => this.flush(), SAVE_MS);
  }

  /** Keep it now. */
  save(chat) {
    this.known.set(chat.id, chat);
    this.unsaved.add(chat);
    this.flush();
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = null;
    // What the browser refuses is tried again with whatever is kept next.
    this.unsaved = new Set([...this.unsaved].filter((chat) => !this.store.write(NAME + chat.id, chat.plain())));
    this.onFull(this.unsaved.size > 0 && !this.store.isClosed);
  }

  /** Remove the earlier chats for good. */
  forgetEarlier() {
    for (const chat of this.earlier) {
      this.known.delete(chat.id);
      this.unsaved.delete(chat);
      this.store.forget(NAME + chat.id);
    }
    this.flush(); // there may be room for the others now
  }
}
