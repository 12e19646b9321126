// @ts-check
// The conversations in groups: pinned ones, folders, and the others by time.
import { html, useEffect, useRef, useSignal } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { Icon } from "../view/icons.js";
import { groupsByTime } from "./groups.js";
import { Failure, Skeleton } from "./reading.js";
import { Row } from "./row.js";

/** @import { ChatFacts } from "../core/types.js" */

export function ChatGroups() {
  const { list, pinned, folders, isLoaded, problem } = app.chatList;
  if (!isLoaded.value) return problem.value ? html`<${Failure} text=${problem.value} />` : html`<${Skeleton} />`;
  const others = list.value.filter((facts) => !facts.pinned_at && !facts.folder);
  const isEmpty = list.value.length === 0 && folders.value.length === 0;
  return html`<div class="chat-groups">
    ${isEmpty && !app.chatList.hasMore.value && html`<p class="sidebar-empty">${t("No chats yet. What you ask is kept here.")}</p>`}
    ${pinned.value.length > 0 && html`<${Group} title=${t("Pinned")} chats=${pinned.value} />`}
    ${folders.value.length > 0 && html`<section class="chat-group" aria-label=${t("Folders")}><h3>${t("Folders")}</h3>${folders.value.map((name) => html`<${Folder} key=${name} name=${name} />`)}</section>`}
    ${groupsByTime(others).map(({ title, chats }) => html`<${Group} key=${title} title=${title} chats=${chats} />`)}
    ${problem.value && html`<${Failure} text=${problem.value} />`}
    <${More} />
  </div>`;
}

/** @param {{title: string, chats: ChatFacts[]}} props */
function Group({ title, chats }) {
  return html`<section class="chat-group" aria-label=${title}><h3>${title}</h3>
    <ul>${chats.map((facts) => html`<${Row} key=${facts.id} facts=${facts} />`)}</ul></section>`;
}

/** @param {{name: string}} props */
function Folder({ name }) {
  const kept = /** @type {string[]} */ (app.readState("folders") ?? []);
  const isOpen = useSignal(kept.includes(name));
  useEffect(() => {
    if (isOpen.value) app.chatList.readFolder(name);
  }, [isOpen.value]);
  const toggle = () => {
    isOpen.value = !isOpen.value;
    const others = /** @type {string[]} */ (app.readState("folders") ?? []).filter((other) => other !== name);
    app.writeState("folders", isOpen.value ? [...others, name] : others);
  };
  const chats = app.chatList.list.value.filter((facts) => facts.folder === name && !facts.pinned_at);
  return html`<div class="folder">
    <button type="button" class="folder-head" data-stop tabindex="-1" aria-expanded=${isOpen.value} onClick=${toggle}>
      <${Icon} name=${isOpen.value ? "down" : "right"} size=${14} /><${Icon} name="folder" size=${16} /><span class="chat-title">${name}</span></button>
    ${isOpen.value && html`<ul>${chats.map((facts) => html`<${Row} key=${facts.id} facts=${facts} />`)}</ul>`}
  </div>`;
}

/** The end of what was read: the next page is read as it comes into sight. */
function More() {
  const ref = useRef(/** @type {HTMLDivElement | null} */ (null));
  const numRead = app.chatList.list.value.length;
  const hasMore = app.chatList.hasMore.value;
  useEffect(() => {
    if (!hasMore || !ref.current) return;
    const observer = new IntersectionObserver(([entry]) => entry.isIntersecting && app.chatList.more(), { rootMargin: "400px" });
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, [hasMore, numRead]);
  return hasMore ? html`<div ref=${ref} class="sidebar-more" role="status"><span class="visually-hidden">${t("Loading more chats")}</span></div>` : null;
}

/** Arrow keys, Home and End move between rows and folders. @param {KeyboardEvent} event */
export function moveInList(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key === "ArrowRight" && target.matches(".chat-link")) {
    /** @type {HTMLElement | null | undefined} */ (target.parentElement?.querySelector(".row-more"))?.focus();
  } else if (event.key === "ArrowLeft" && target.matches(".row-more")) {
    /** @type {HTMLElement | null | undefined} */ (target.parentElement?.querySelector(".chat-link"))?.focus();
  } else {
    const stops = /** @type {HTMLElement[]} */ ([.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("[data-stop]")]);
    const at = stops.findIndex((stop) => stop === target || stop.parentElement === target.parentElement);
    const places = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: stops.length - 1 };
    const to = stops[places[/** @type {keyof typeof places} */ (event.key)]];
    if (!to) return;
    to.focus();
  }
  event.preventDefault();
  event.stopPropagation();
}
