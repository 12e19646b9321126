// @ts-check
// The title of a chat, as it is changed in its row: typed, or suggested by the chat's model.
import { html, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { rename } from "./chat_acts.js";
import { askTitle, MAX_TITLE_CHARS, titleChat } from "./suggested_title.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { ChatFacts } from "../core/types.js" */

/** @param {{facts: ChatFacts}} props */
export function RenameForm({ facts }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const isOver = useRef(false);
  const stopping = useRef(new AbortController());
  const [title, setTitle] = useState(facts.title);
  const [asking, setAsking] = useState(/** @type {Chat | null} */ (null));
  const [problem, setProblem] = useState("");
  const [numAsked, setNumAsked] = useState(0);
  // With the frame that shows a suggestion, so that nothing typed since then is selected.
  useLayoutEffect(() => {
    input.current?.focus();
    input.current?.select();
  }, [numAsked]);
  useLayoutEffect(() => () => stopping.current.abort(), []);
  const end = (/** @type {string} */ chosen, isByKey = true) => {
    if (isOver.current) return;
    isOver.current = true;
    rename(facts, chosen);
    if (isByKey) requestAnimationFrame(() => focusRow(facts.id));
  };
  const suggest = async () => {
    if (asking) return stopping.current.abort();
    const chat = titleChat(facts);
    stopping.current = new AbortController();
    setAsking(chat);
    setProblem("");
    const said = await askTitle(chat, facts, stopping.current.signal);
    if (isOver.current) return;
    setAsking(null);
    setProblem(said.problem);
    if (said.title) setTitle(said.title);
    setNumAsked((num) => num + 1);
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    event.stopPropagation();
    const isEnter = event.key === "Enter" && event.target === input.current;
    if (event.isComposing || (!isEnter && event.key !== "Escape")) return;
    event.preventDefault();
    end(isEnter ? title : facts.title);
  };
  const left = (/** @type {FocusEvent} */ event) => {
    if (asking && !document.hasFocus()) return; // another window has it
    if (!(/** @type {Node} */ (event.currentTarget).contains(/** @type {Node | null} */ (event.relatedTarget)))) end(title, false);
  };
  return html`<div class="rename" onKeyDown=${key} onFocusOut=${left}>
    <input ref=${input} class="rename-input" aria-label=${t("Title of the chat")} maxlength=${MAX_TITLE_CHARS} readonly=${asking !== null} value=${title} onInput=${(/** @type {any} */ event) => setTitle(event.target.value)} />
    <button type="button" class="button button-small" onMouseDown=${(/** @type {Event} */ event) => event.preventDefault()} onClick=${suggest}>${asking ? t("Stop") : t("Suggest a title")}</button>
    <p class="hint" role="status">${asking && waitingFor(asking)}</p>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
  </div>`;
}

/** @param {Chat} asking */
const waitingFor = (asking) => asking.running.value[0]?.status.value.waitsFor || t("Asking {model} …", { model: asking.settings.value.model });

/** @param {string} id */
const focusRow = (id) => /** @type {HTMLElement | null} */ (document.querySelector(`.sidebar [data-chat="${id}"] .chat-link`))?.focus();
