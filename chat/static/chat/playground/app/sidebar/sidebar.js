// @ts-check
// The left column: one's chats, and the search over them. On phones it is a drawer.
import { html, useLayoutEffect, useRef } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { t } from "../core/i18n.js";
import { page } from "../core/page.js";
import { IconButton, Menu, MenuAct } from "../view/controls.js";
import { Icon } from "../view/icons.js";
import { isPhone, openDialog, sidebarIsOpen, toggleSidebar } from "../view/layers.js";
import { ImportDialog } from "./import_dialog.js";
import { ChatGroups, moveInList } from "./list.js";
import { OtherView } from "./other_view.js";
import { endPicking, PickedBar } from "./picked_bar.js";
import { pickShown, startPicking } from "./picking.js";
import { RowMenu } from "./row_menu.js";
import { FilterBox, FilterButton } from "./filters.js";
import { changeQuery, isSearching, query, SearchResults } from "./search.js";
import { picked, view } from "./state.js";

/** @import { Chat } from "../core/chat.js" */

const focus = (/** @type {string} */ selector) => requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(selector))?.focus());
/** Once what is being drawn is there. @param {string} selector */
const focusIfLost = (selector) => queueMicrotask(() => void (document.activeElement === document.body && /** @type {HTMLElement | null} */ (document.querySelector(selector))?.focus()));

/** @param {{open: Chat}} _props */
export function Sidebar(_props) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    // The button that opened the column is gone now, and its focus with it.
    focusIfLost("#sidebar-close");
    return () => {
      if (!sidebarIsOpen.value) focusIfLost("#sidebar-toggle");
    };
  }, []);
  const start = (isTemporary = false) => {
    acts.newChat({ isTemporary });
    if (isPhone.value) toggleSidebar(false);
  };
  return html`<nav class="sidebar" id="sidebar" ref=${ref} aria-label=${t("Chats")}>
    <header class="sidebar-head">
      <a class="brand" href="/" onClick=${(/** @type {MouseEvent} */ event) => event.button === 0 && !event.ctrlKey && !event.metaKey && (event.preventDefault(), start())}><img src=${page.urls.mark} alt="" />Lightcone</a>
      <${ViewMenu} />
      <${IconButton} icon=${isPhone.value ? "close" : "left"} id="sidebar-close" label=${t("Close the list of chats")} onClick=${() => toggleSidebar(false)} />
    </header>
    <div class="sidebar-top">
      <button type="button" class="button sidebar-new" id="sidebar-new-chat" onClick=${() => start()}><${Icon} name="plus" size=${16} /><span>${t("New chat")}</span></button>
      <${IconButton} icon="ghost" class="sidebar-temporary" label=${t("New temporary chat")} onClick=${() => start(true)} />
    </div>
    <${SearchBox} />
    <div class="sidebar-list" onKeyDown=${keyInList}><${Body} /></div>
    <${RowMenu} />
    ${picked.value && html`<${PickedBar} chosen=${picked.value} />`}
    ${page.admins_can_read && html`<p class="sidebar-note">${t("Administrators can read chats here.")}</p>`}
  </nav>`;
}

/** @param {KeyboardEvent} event */
function keyInList(event) {
  const isAll = event.key === "a" && (event.ctrlKey || event.metaKey);
  if (!picked.value || !(isAll || event.key === "Escape")) return moveInList(event);
  event.preventDefault();
  event.stopPropagation();
  if (isAll) pickShown();
  else endPicking();
}

function Body() {
  if (view.value !== "current") return html`<${OtherView} key=${view.value} name=${view.value} />`;
  return isSearching.value ? html`<${SearchResults} />` : html`<${ChatGroups} />`;
}

/** Show the chats again. The focus goes where the other view was chosen: a search box would open a phone's keyboard. */
function leaveView() {
  view.value = "current";
  /** @type {HTMLElement | null} */ (document.querySelector(".view-menu summary"))?.focus();
}

function SearchBox() {
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && query.value) {
      event.preventDefault();
      event.stopPropagation();
      changeQuery("");
    } else if (event.key === "ArrowDown") {
      event.preventDefault();
      /** @type {HTMLElement | null} */ (document.querySelector(".sidebar-list [data-stop]"))?.focus();
    }
  };
  const heading = { archived: t("Archived chats"), deleted: t("Deleted chats") };
  if (view.value !== "current") {
    return html`<div class="sidebar-view"><${IconButton} icon="left" size=${16} label=${t("Back to the chats")} onClick=${leaveView} /><h2>${heading[view.value]}</h2></div>`;
  }
  return html`<div class="sidebar-search" role="search"><${Icon} name="search" size=${16} />
    <input id="chat-search" type="search" autocomplete="off" placeholder=${t("Search chats")} aria-label=${t("Search chats")} maxlength="200" value=${query.value}
      onInput=${(/** @type {any} */ event) => changeQuery(event.target.value)} onKeyDown=${key} />
    ${query.value && html`<${IconButton} icon="close" size=${14} label=${t("Clear the search")} onClick=${() => (changeQuery(""), focus("#chat-search"))} />`}
    <${FilterButton} /></div><${FilterBox} />`;
}

function ViewMenu() {
  return html`<${Menu} class="view-menu" label=${t("More about chats")} align="right">
    <${MenuAct} icon="archive" onClick=${() => (view.value = "archived")}>${t("Archived chats")}<//>
    <${MenuAct} icon="trash" onClick=${() => (view.value = "deleted")}>${t("Deleted chats")}<//>
    <hr />
    <${MenuAct} icon="check" onClick=${startPicking}>${t("Select several")}<//>
    <${MenuAct} icon="upload" onClick=${() => openDialog(() => html`<${ImportDialog} />`)}>${t("Import …")}<//>
  <//>`;
}
