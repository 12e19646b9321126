// @ts-check
// The search over one's own chats, as one types.
import { html, signal, useEffect, useRef } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import { titleOf } from "../core/chat_list.js";
import { moment, t } from "../core/i18n.js";
import { roleName } from "../core/roles.js";
import { Failure } from "./list.js";
import { openHere } from "./reveal.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatFacts, Role } from "../core/types.js" */

/** @typedef {{conversation: ChatFacts, turn: string | null, role: Role | null, snippet: string}} Hit */

const DELAY_MS = 150;

export const query = signal("");
/** Null while nothing was found yet. @type {Signal<Hit[] | null>} */
const hits = signal(null);
/** Where the next page begins. @type {Signal<number | null>} */
const before = signal(null);
const problem = signal("");

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let reading = new AbortController();

/** @param {string} text */
export function changeQuery(text) {
  const isOther = text.trim() !== query.value.trim();
  query.value = text;
  if (!isOther) return;
  clearTimeout(timer);
  reading.abort();
  if (text.trim()) timer = setTimeout(() => read(), DELAY_MS);
  else hits.value = null;
}

/** @param {number} [from] the place where the next page begins */
async function read(from) {
  reading.abort();
  reading = new AbortController();
  const { signal: reader } = reading;
  try {
    const after = from === undefined ? "" : `&before=${from}`;
    const found = await api("GET", `search?q=${encodeURIComponent(query.value.trim())}${after}`, undefined, { signal: reader });
    hits.value = from === undefined ? found.data : [...(hits.value ?? []), ...found.data];
    before.value = found.before;
    problem.value = "";
  } catch (error) {
    if (reader.aborted) return;
    if (!(error instanceof ApiProblem)) throw error;
    problem.value = error.message;
  }
}

export function SearchResults() {
  const found = hits.value;
  if (problem.value) return html`<${Failure} text=${problem.value} onAgain=${() => read()} />`;
  if (!found) return html`<p class="sidebar-empty" role="status">${t("Searching")}</p>`;
  if (found.length === 0) return html`<p class="sidebar-empty" role="status">${t("Nothing found for “{query}”. All words must occur in one message or title.", { query: query.value.trim() })}</p>`;
  return html`<ul class="hits" aria-label=${t("Found messages")}>${found.map((hit) => html`<${HitRow} key=${`${hit.conversation.id}/${hit.turn}`} hit=${hit} />`)}</ul>
    ${before.value !== null && html`<${MoreHits} from=${before.value} />`}`;
}

/** @param {{hit: Hit}} props */
function HitRow({ hit: { conversation, turn, role, snippet } }) {
  const title = titleOf(conversation);
  const changed = new Date(1000 * conversation.updated_at);
  const open = (/** @type {MouseEvent} */ event) => openHere(event, conversation.id, turn ?? undefined);
  return html`<li class="hit"><a class="hit-link" data-stop href=${`/c/${conversation.id}`} onClick=${open}>
    <span class="hit-head"><span class="hit-title"><${Marked} text=${title} /></span><time dateTime=${changed.toISOString()}>${moment(changed, { day: "numeric", month: "short" })}</time></span>
    ${turn && html`<span class="hit-text">${role && html`<b>${roleName(role)}: </b>`}<${Marked} text=${snippet} /></span>`}</a></li>`;
}

/** @param {{from: number}} props */
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
