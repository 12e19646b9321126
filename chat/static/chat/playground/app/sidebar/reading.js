// @ts-check
// What stands in place of a list of chats that is being read, or cannot be.
import { html } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";

/** What could not be read, and a button to try again. @param {{text: string, onAgain?: () => void}} props */
export function Failure({ text, onAgain = () => app.chatList.refresh() }) {
  return html`<div class="sidebar-failure" role="alert"><p>${text}</p>
    <button type="button" class="button button-small" onClick=${onAgain}>${t("Try again")}</button></div>`;
}

export const Skeleton = () =>
  html`<div class="sidebar-skeleton" role="status"><span class="visually-hidden">${t("Loading the chats")}</span>${[72, 54, 83, 61, 76, 48].map((width) => html`<span style=${{ width: `${width}%` }}></span>`)}</div>`;
