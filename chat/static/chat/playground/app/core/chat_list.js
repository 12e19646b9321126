// @ts-check
// The list of conversations in the left column.
import { signal } from "../../../vendor/preact.js";
import { api, ApiProblem } from "./api.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatFacts } from "./types.js" */

const PAGE = 60;
const REFRESH_MS = 800;

export class ChatList {
  constructor() {
    /** The latest first. @type {Signal<ChatFacts[]>} */
    this.list = signal([]);
    /** @type {Signal<ChatFacts[]>} */
    this.pinned = signal([]);
    this.hasMore = signal(false);
    this.isLoaded = signal(false);
    /** @type {Signal<string>} what went wrong at the last reading */
    this.problem = signal("");
  }

  /** Read the beginning of the list again. */
  async refresh() {
    try {
      const [current, pinned] = await Promise.all([api("GET", `conversations?limit=${PAGE}`), api("GET", "conversations?view=pinned&limit=100")]);
      this.list.value = current.data;
      this.pinned.value = pinned.data;
      this.hasMore.value = current.has_more;
      this.problem.value = "";
      this.isLoaded.value = true;
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      this.problem.value = error.message;
    }
  }

  refreshSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), REFRESH_MS);
  }

  async more() {
    const last = this.list.value.at(-1);
    if (!last || !this.hasMore.value) return;
    const next = await api("GET", `conversations?limit=${PAGE}&after=${last.id}`);
    this.list.value = [...this.list.value, ...next.data];
    this.hasMore.value = next.has_more;
  }

  /** A conversation is new or has changed. @param {ChatFacts} facts */
  put(facts) {
    const others = this.list.value.filter(({ id }) => id !== facts.id);
    this.list.value = facts.archived_at || facts.deleted_at ? others : [facts, ...others];
    const pinned = this.pinned.value.filter(({ id }) => id !== facts.id);
    this.pinned.value = facts.pinned_at && !facts.archived_at && !facts.deleted_at ? [facts, ...pinned] : pinned;
  }

  /** A conversation has other fields, at the same place of the list. @param {ChatFacts} facts */
  replace(facts) {
    if (facts.archived_at || facts.deleted_at) return this.remove([facts.id]);
    const swap = (/** @type {ChatFacts} */ old) => (old.id === facts.id ? facts : old);
    this.list.value = this.list.value.map(swap);
    const others = this.pinned.value.filter(({ id }) => id !== facts.id);
    this.pinned.value = facts.pinned_at ? [facts, ...others] : others;
  }

  /** @param {string[]} ids */
  remove(ids) {
    this.list.value = this.list.value.filter(({ id }) => !ids.includes(id));
    this.pinned.value = this.pinned.value.filter(({ id }) => !ids.includes(id));
  }
}
