// @ts-check
// The search over one's own chats, as one types: by words, by filters, or by both.
import { computed, html, signal, useEffect, useRef } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import * as app from "../core/app.js";
import { titleOf } from "../core/chat_list.js";
import { moment, t } from "../core/i18n.js";
import { roleName } from "../core/roles.js";
import { Menu } from "../view/controls.js";
import { Icon } from "../view/icons.js";
import { ExportMenu } from "./export_acts.js";
import { Failure } from "./reading.js";
import { PickLabel, startPicking } from "./picking.js";
import { openHere } from "./reveal.js";
import { picked } from "./state.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatFacts, Role } from "../core/types.js" */

/** @typedef {{conversation: ChatFacts, turn: string | null, role: Role | null, snippet: string}} Hit */
/** @typedef {{model: string, tag: string, has_tools: boolean, first: string, last: string}} Filters `first`, `last`: days of the last change, as inputs have them */

const DELAY_MS = 150;

export const query = signal("");
/** @type {Filters} */
export const NO_FILTERS = { model: "", tag: "", has_tools: false, first: "", last: "" };
/** @type {Signal<Filters>} */
export const filters = signal(NO_FILTERS);
export const isFiltered = computed(() => Object.values(filters.value).some(Boolean));
/** The last day is before the first one, so that nothing fits. */
export const isImpossible = computed(() => Boolean(filters.value.first && filters.value.last && filters.value.last < filters.value.first));
export const isSearching = computed(() => isFiltered.value || query.value.trim() !== "");
/** Null while nothing was found yet. @type {Signal<Hit[] | null>} */
const hits = signal(null);
/** The fields that ask for the next page; null behind the last one. @type {Signal<string | null>} */
const next = signal(null);
const problem = signal("");

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let reading = new AbortController();

/** @param {string} text */
export function changeQuery(text) {
  const isOther = text.trim() !== query.value.trim();
  query.value = text;
  if (isOther) readSoon();
}

/** @param {Partial<Filters>} change */
export function changeFilters(change) {
  filters.value = { ...filters.value, ...change };
  readSoon();
}

/** Ask again for what was found, as chats have changed. */
export function searchAgain() {
  if (isSearching.value) read();
}

function readSoon() {
  clearTimeout(timer);
  reading.abort();
  if (isSearching.value) timer = setTimeout(() => read(), DELAY_MS);
  else hits.value = null;
}

/** The end of the year 9999, the last instant that the server knows, in seconds. */
const LAST_SECOND = 253_402_300_799;

/** The midnight at which a day begins, in seconds. A year that is being typed may be one that the server does not know. @param {string} day @param {number} [more] days later */
function midnight(day, more = 0) {
  const [year, month, date] = day.split("-").map(Number);
  const seconds = Math.round(new Date(year, month - 1, date + more).getTime() / 1000);
  return Math.min(Math.max(seconds, 0), LAST_SECOND);
}

/** What the filters ask of the server, without words. */
function filterFields() {
  const { model, tag, has_tools, first, last } = filters.value;
  /** @type {Record<string, string | number | boolean>} */
  const fields = {};
  if (model) fields.model = model;
  if (tag) fields.tag = tag;
  if (has_tools) fields.has_tools = true;
  if (first) fields.since = midnight(first);
  if (last) fields.until = midnight(last, 1);
  return fields;
}

/** @param {string} [from] the fields that ask for the page */
async function read(from = "") {
  reading.abort();
  reading = new AbortController();
  if (isImpossible.value) {
    [hits.value, next.value, problem.value] = [[], null, ""];
    return;
  }
  const { signal: reader } = reading;
  const fields = new URLSearchParams(Object.entries(filterFields()).map(([name, value]) => [name, String(value)]));
  const words = query.value.trim();
  if (words) fields.set("q", words);
  try {
    const found = await api("GET", `${words ? "search" : "conversations"}?${words ? "" : "view=all&limit=40&"}${fields}${from}`, undefined, { signal: reader });
    const page = words ? found.data : found.data.map((/** @type {ChatFacts} */ conversation) => ({ conversation, turn: null, role: null, snippet: "" }));
    for (const { conversation } of page) app.chatList.versions.set(conversation.id, conversation.version);
    hits.value = eachOnce([...(from ? (hits.value ?? []) : []), ...page]);
    next.value = nextPage(found);
    problem.value = "";
  } catch (error) {
    if (reader.aborted) return;
    if (!(error instanceof ApiProblem)) throw error;
    problem.value = error.message;
  }
}

/** A chat that has changed meanwhile may come with a later page too. @param {Hit[]} found */
const eachOnce = (found) => [...new Map(found.map((hit) => [`${hit.conversation.id}/${hit.turn}`, hit])).values()];

/** @param {{data: ChatFacts[], before?: number | null, has_more?: boolean}} found */
function nextPage({ data, before, has_more: hasMore }) {
  if (before) return `&before=${before}`;
  return hasMore ? `&after=${data.at(-1)?.id}` : null;
}

export function SearchResults() {
  const found = hits.value;
  if (problem.value) return html`<${Failure} text=${problem.value} onAgain=${() => read()} />`;
  if (!found) return html`<p class="sidebar-empty" role="status">${t("Searching")}</p>`;
  if (found.length === 0) return html`<p class="sidebar-empty" role="status">${nothingFound()}</p>`;
  if (picked.value) return html`<ul class="hits" aria-label=${t("Found chats")}>${foundChats(found).map((facts) => html`<li class="chat-row" key=${facts.id}><${PickLabel} facts=${facts} /></li>`)}</ul><${More} />`;
  return html`<div class="hits-head"><button type="button" class="button button-quiet button-small" onClick=${startPicking}>${t("Select")}</button>
      <${Menu} class="hits-export" label=${t("Export all chats found")} button=${html`<${Icon} name="download" size=${14} />${t("Export all")}`}><${ExportMenu} fields=${() => ({ q: query.value.trim(), ...filterFields() })} /><//></div>
    <ul class="hits" aria-label=${t("Found messages")}>${found.map((hit) => html`<${HitRow} key=${`${hit.conversation.id}/${hit.turn}`} hit=${hit} />`)}</ul>
    <${More} />`;
}

const More = () => (next.value === null ? null : html`<${MoreHits} from=${next.value} />`);

/** The chats of what was found, each once. @param {Hit[]} found */
const foundChats = (found) => [...new Map(found.map(({ conversation }) => [conversation.id, conversation])).values()];

function nothingFound() {
  const asked = query.value.trim();
  if (!asked) return t("No chat fits these filters.");
  if (isFiltered.value) return t("Nothing found for “{query}” in the chats that fit the filters.", { query: asked });
  return t("Nothing found for “{query}”. All words must occur in one message or title.", { query: asked });
}

/** @param {{hit: Hit}} props */
function HitRow({ hit: { conversation, turn, role, snippet } }) {
  const title = titleOf(conversation);
  const changed = new Date(1000 * conversation.updated_at);
  const open = (/** @type {MouseEvent} */ event) => openHere(event, conversation.id, turn ?? undefined);
  return html`<li class="hit"><a class="hit-link" data-stop href=${`/c/${conversation.id}`} onClick=${open}>
    <span class="hit-head"><span class="hit-title"><${Marked} text=${title} /></span><time dateTime=${changed.toISOString()}>${moment(changed, { day: "numeric", month: "short" })}</time></span>
    ${turn && html`<span class="hit-text">${role && html`<b>${roleName(role)}: </b>`}<${Marked} text=${snippet} /></span>`}
    ${conversation.tags.length > 0 && html`<span class="hit-tags">${conversation.tags.map((tag) => html`<span class="badge" key=${tag}>${tag}</span>`)}</span>`}</a></li>`;
}

/** @param {{from: string}} props */
function MoreHits({ from }) {
  const ref = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => entry.isIntersecting && read(from), { rootMargin: "300px" });
    observer.observe(/** @type {HTMLDivElement} */ (ref.current));
    return () => observer.disconnect();
  }, [from]);
  return html`<div ref=${ref} class="sidebar-more"></div>`;
}

/** A text with the words of the query marked. @param {{text: string}} props */
function Marked({ text }) {
  return markedParts(text, query.value).map(({ part, isFound }) => (isFound ? html`<mark>${part}</mark>` : part));
}

/** Letters without case and accents, one for each of the text. @param {string} text */
const plainLetters = (text) => [...text].map((letter) => letter.normalize("NFKD")[0].toLowerCase());

/**
 * Divide a text into what the query asks for and what it does not.
 * @param {string} text
 * @param {string} asked
 * @returns {{part: string, isFound: boolean}[]}
 */
function markedParts(text, asked) {
  const letters = [...text];
  const plain = plainLetters(text);
  const isMarked = letters.map(() => false);
  for (const word of asked.split(/[^\p{L}\p{N}\p{M}]+/u).filter(Boolean)) {
    const sought = plainLetters(word);
    for (let at = 0; at + sought.length <= plain.length; at += 1) {
      const isBegin = at === 0 || !/[\p{L}\p{N}]/u.test(plain[at - 1]) || /\p{Lo}/u.test(plain[at]);
      if (isBegin && sought.every((letter, n) => plain[at + n] === letter)) isMarked.fill(true, at, at + sought.length);
    }
  }
  /** @type {{part: string, isFound: boolean}[]} */
  const parts = [];
  for (const [at, letter] of letters.entries()) {
    const last = parts.at(-1);
    if (last?.isFound === isMarked[at]) last.part += letter;
    else parts.push({ part: letter, isFound: isMarked[at] });
  }
  return parts;
}
