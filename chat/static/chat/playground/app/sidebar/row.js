// @ts-check
import { html } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { titleOf } from "../core/chat_list.js";
import { t } from "../core/i18n.js";
import { Icon } from "../view/icons.js";
import { deleteChats } from "./chat_acts.js";
import { PickLabel } from "./picking.js";
import { RenameForm } from "./rename_form.js";
import { openHere } from "./reveal.js";
import { picked, renaming, rowMenu } from "./state.js";

/** @import { ChatFacts } from "../core/types.js" */

/** A conversation in the list. @param {{facts: ChatFacts}} props */
export function Row({ facts }) {
  const isPresent = app.chat.value.id === facts.id;
  const isRunning = app.openChats.get(facts.id)?.isBusy.value ?? false;
  if (renaming.value === facts.id) return html`<li class="chat-row is-renaming"><${RenameForm} facts=${facts} /></li>`;
  if (picked.value) return html`<li class="chat-row"><${PickLabel} facts=${facts} /></li>`;
  const isMenuOpen = rowMenu.value?.facts.id === facts.id;
  const title = titleOf(facts);
  const toggleMenu = (/** @type {MouseEvent} */ event) => {
    rowMenu.value = isMenuOpen ? null : { facts, anchor: /** @type {HTMLElement} */ (event.currentTarget) };
  };
  return html`<li class=${`chat-row ${isPresent ? "is-present" : ""} ${isMenuOpen ? "has-menu" : ""}`} data-chat=${facts.id}>
    <a class="chat-link" data-stop href=${`/c/${facts.id}`} title=${title} tabindex=${isPresent ? 0 : -1} aria-current=${isPresent ? "page" : undefined}
      onClick=${(/** @type {MouseEvent} */ event) => openHere(event, facts.id)}>
      <span class="chat-title">${title}</span>${facts.tags.length > 0 && html`<span class="chat-tags">${tagsShown(facts.tags)}</span>`}${isRunning && html`<span class="chat-running"><span class="visually-hidden">${t("An answer is running")}</span></span>`}</a>
    <button type="button" class="button button-quiet row-more" aria-label=${t("Acts for {title}", { title })} title=${t("More")} aria-haspopup="menu" aria-expanded=${isMenuOpen}
      tabindex=${isPresent ? 0 : -1} onClick=${toggleMenu}><${Icon} name="more" size=${16} /></button>
  </li>`;
}

/** @param {string[]} tags */
const tagsShown = ([first, ...others]) => (others.length ? `${first} +${others.length}` : first);

/** Delete the chat of a row, and leave the focus in the list. @param {HTMLElement} row */
export function deleteRow(row) {
  const near = row.nextElementSibling ?? row.previousElementSibling;
  /** @type {HTMLElement | null | undefined} */ (near?.querySelector("[data-stop]"))?.focus();
  deleteChats([row.dataset.chat ?? ""]);
}
