// @ts-check
// The conversations that the left column lists: all that this page has heard of, the latest first.
import { computed, signal } from "../../../vendor/preact.js";
import { api, ApiProblem } from "./api.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatFacts } from "./types.js" */

const PAGE = 60;
const MAX_READ_AGAIN = 300;
const REFRESH_MS = 800;

/** @param {ChatFacts} a @param {ChatFacts} b */
const latestFirst = (a, b) => b.updated_at - a.updated_at;

/** @param {ChatFacts} facts */
const isCurrent = (facts) => !facts.archived_at && !facts.deleted_at;

export class ChatList {
  constructor() {
    /** @type {Signal<Map<string, ChatFacts>>} */
    this.known = signal(new Map());
    this.list = computed(() => [...this.known.value.values()].sort(latestFirst));
    this.pinned = computed(() => this.list.value.filter((facts) => facts.pinned_at));
    /** The names of all folders, also of those whose chats were not read yet. @type {Signal<string[]>} */
    this.folders = signal([]);
    this.hasMore = signal(false);
    this.isLoaded = signal(false);
    /** @type {Signal<string>} what went wrong at the last reading */
    this.problem = signal("");
    /** The last conversation of the pages that were read. */
    this.cursor = "";
    this.numRead = 0;
    this.isReading = false;
    /** Folders whose chats were all read. @type {Set<string>} */
    this.openFolders = new Set();
    /** Conversations that this page has deleted. @type {Set<string>} */
    this.deleted = new Set();
    /** The versions of conversations that the list does not show. @type {Map<string, number>} */
    this.versions = new Map();
    /** What has changed here while the list is read. @type {Map<string, ChatFacts | null>} */
    this.meanwhile = new Map();
  }

  /** @param {string} id */
  versionOf(id) {
    return this.find(id)?.version ?? this.versions.get(id);
  }

  /** @param {string} id */
  find(id) {
    return this.known.value.get(id);
  }

  /** Read the list again, as far as it was read. */
  async refresh() {
    if (this.isReading) return this.refreshSoon();
    this.isReading = true;
    this.meanwhile.clear();
    try {
      const [first, pinned, folders] = await Promise.all([
        api("GET", `conversations?limit=${PAGE}`),
        api("GET", "conversations?view=pinned&limit=100"),
        api("GET", "folders"),
      ]);
      const read = await this.#readOn(first);
      const ofFolders = await Promise.all([...this.openFolders].map(ofFolder));
      this.folders.value = folders.data;
      this.#show([...pinned.data, ...ofFolders.flat(), ...read.data]);
      this.cursor = read.data.at(-1)?.id ?? "";
      this.numRead = read.data.length;
      this.hasMore.value = read.has_more;
      this.problem.value = "";
      this.isLoaded.value = true;
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      this.problem.value = error.message;
    } finally {
      this.isReading = false;
    }
  }

  /** Read pages until there are as many conversations as before. @param {{data: ChatFacts[], has_more: boolean}} first */
  async #readOn(first) {
    const read = { data: [...first.data], has_more: first.has_more };
    while (read.has_more && read.data.length < Math.min(this.numRead, MAX_READ_AGAIN)) {
      const next = await api("GET", `conversations?limit=${PAGE}&after=${read.data.at(-1)?.id}`);
      read.data.push(...next.data);
      read.has_more = next.has_more;
    }
    return read;
  }

  /** @param {ChatFacts[]} read */
  #show(read) {
    const known = new Map(read.map((facts) => [facts.id, facts]));
    // NOTE: what was changed here since is newer than what was read.
    for (const [id, facts] of this.meanwhile) {
      if (facts) known.set(id, facts);
      else known.delete(id);
    }
    this.known.value = known;
  }

  refreshSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), REFRESH_MS);
  }

  /** Read the next page. */
  async more() {
    if (this.isReading || !this.hasMore.value || !this.cursor) return;
    this.isReading = true;
    try {
      const next = await api("GET", `conversations?limit=${PAGE}&after=${this.cursor}`);
      this.#add(next.data);
      this.cursor = next.data.at(-1)?.id ?? this.cursor;
      this.numRead += next.data.length;
      this.hasMore.value = next.has_more;
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      this.problem.value = error.message;
      this.hasMore.value = false;
    } finally {
      this.isReading = false;
    }
  }

  /** Read all chats of a folder, as it is opened. @param {string} name */
  async readFolder(name) {
    if (this.openFolders.has(name)) return;
    this.openFolders.add(name);
    try {
      this.#add(await ofFolder(name));
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      this.openFolders.delete(name);
      this.problem.value = error.message;
    }
  }

  /** @param {ChatFacts[]} read */
  #add(read) {
    const known = new Map(this.known.value);
    for (const facts of read) if (!this.deleted.has(facts.id)) known.set(facts.id, facts);
    this.known.value = known;
  }

  /** A conversation is new or has changed. @param {ChatFacts} facts */
  put(facts) {
    if (this.deleted.has(facts.id)) return;
    this.versions.set(facts.id, facts.version);
    if (!isCurrent(facts)) return this.remove([facts.id]);
    this.meanwhile.set(facts.id, facts);
    this.known.value = new Map(this.known.value).set(facts.id, facts);
    if (facts.folder && !this.folders.value.includes(facts.folder)) this.folders.value = [...this.folders.value, facts.folder].sort();
  }

  /** @param {string[]} ids */
  remove(ids) {
    const known = new Map(this.known.value);
    for (const id of ids) {
      known.delete(id);
      this.meanwhile.set(id, null);
    }
    this.known.value = known;
  }
}

/** @param {string} name @returns {Promise<ChatFacts[]>} */
async function ofFolder(name) {
  /** @type {ChatFacts[]} */
  const all = [];
  for (let hasMore = true; hasMore && all.length < MAX_READ_AGAIN; ) {
    const after = all.length ? `&after=${all.at(-1)?.id}` : "";
    const { data, has_more } = await api("GET", `conversations?folder=${encodeURIComponent(name)}&limit=100${after}`);
    all.push(...data);
    hasMore = has_more;
  }
  return all;
}
