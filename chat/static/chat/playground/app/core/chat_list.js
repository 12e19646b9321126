// @ts-check
// The conversations that the left column lists: all that this page has heard of, the latest first.
import { computed, signal } from "../../../vendor/preact.js";
import { api, refusalOf } from "./api.js";
import { t } from "./i18n.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatFacts } from "./types.js" */

const PAGE = 60;
const MAX_READ_AGAIN = 300;
const REFRESH_MS = 800;

/** @param {ChatFacts} a @param {ChatFacts} b */
const latestFirst = (a, b) => b.updated_at - a.updated_at;

/** What a conversation is called on the page. @param {{title: string}} facts */
export const titleOf = ({ title }) => title || t("Untitled chat");

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
    this.meanwhile.clear();
    this.problem.value = await this.#read(async () => {
      const [read, pinned, folders] = await Promise.all([
        pagesOf(`limit=${PAGE}`, Math.min(this.numRead, MAX_READ_AGAIN)),
        api("GET", "conversations?view=pinned&limit=100"),
        api("GET", "folders"),
      ]);
      const ofFolders = await Promise.all([...this.openFolders].map(ofFolder));
      this.folders.value = folders.data;
      this.#show([...pinned.data, ...ofFolders.flat(), ...read.data]);
      this.cursor = read.data.at(-1)?.id ?? "";
      this.numRead = read.data.length;
      this.hasMore.value = read.has_more;
      this.isLoaded.value = true;
    });
  }

  /** Read one thing at a time, and return why the server refuses. @param {() => Promise<void>} act */
  async #read(act) {
    this.isReading = true;
    try {
      return await refusalOf(act);
    } finally {
      this.isReading = false;
    }
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
    const problem = await this.#read(async () => {
      const next = await pageOf(`limit=${PAGE}`, this.cursor);
      this.#add(next.data);
      this.cursor = next.data.at(-1)?.id ?? this.cursor;
      this.numRead += next.data.length;
      this.hasMore.value = next.has_more;
    });
    if (!problem) return;
    this.problem.value = problem;
    this.hasMore.value = false;
  }

  /** Read all chats of a folder, as it is opened. @param {string} name */
  async readFolder(name) {
    if (this.openFolders.has(name)) return;
    this.openFolders.add(name);
    const problem = await refusalOf(async () => this.#add(await ofFolder(name)));
    if (!problem) return;
    this.openFolders.delete(name);
    this.problem.value = problem;
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

/** @typedef {{data: ChatFacts[], has_more: boolean}} Page */

/** Read a page of conversations. @param {string} query @param {string} [after] the last conversation before it @returns {Promise<Page>} */
export const pageOf = (query, after) => api("GET", `conversations?${query}${after ? `&after=${after}` : ""}`);

/** Read pages until there are so many conversations, or all. @param {string} query @param {number} num @returns {Promise<Page>} */
async function pagesOf(query, num) {
  const read = await pageOf(query);
  while (read.has_more && read.data.length < num) {
    const next = await pageOf(query, read.data.at(-1)?.id);
    read.data.push(...next.data);
    read.has_more = next.has_more;
  }
  return read;
}

/** @param {string} name */
const ofFolder = async (name) => (await pagesOf(`folder=${encodeURIComponent(name)}&limit=100`, MAX_READ_AGAIN)).data;
