// @ts-check
// The conversations that are archived or deleted.
import { html, useEffect, useState } from "../../../vendor/preact.js";
import { refusalOf } from "../core/api.js";
import * as app from "../core/app.js";
import { pageOf, titleOf } from "../core/chat_list.js";
import { t } from "../core/i18n.js";
import { archiveChats, restoreChats } from "./chat_acts.js";
import { Failure, Skeleton } from "./reading.js";
import { openHere } from "./reveal.js";

/** @import { ChatFacts } from "../core/types.js" */

const PAGE = 50;

/** @param {{name: "archived" | "deleted"}} props */
export function OtherView({ name }) {
  const [chats, setChats] = useState(/** @type {ChatFacts[] | null} */ (null));
  const [hasMore, setHasMore] = useState(false);
  const [problem, setProblem] = useState("");
  const read = async (/** @type {ChatFacts[]} */ before) => {
    const refusal = await refusalOf(async () => {
      const found = await pageOf(`view=${name}&limit=${PAGE}`, before.at(-1)?.id);
      for (const { id, version } of found.data) app.chatList.versions.set(id, version);
      setChats([...before, ...found.data]);
      setHasMore(found.has_more);
    });
    setProblem(refusal);
  };
  useEffect(() => void read([]), [name]);
  const back = async (/** @type {string} */ id) => {
    const isBack = name === "archived" ? await archiveChats([id], false) : await restoreChats([id]);
    if (!isBack) return;
    setChats((chats ?? []).filter((facts) => facts.id !== id));
  };
  if (problem) return html`<${Failure} text=${problem} onAgain=${() => read([])} />`;
  if (!chats) return html`<${Skeleton} />`;
  const hint = name === "deleted" ? t("Deleted chats can be restored for a day.") : t("Archived chats stay until you delete them, and are found by the search.");
  return html`<p class="sidebar-hint">${hint}</p>
    ${chats.length === 0 && html`<p class="sidebar-empty">${name === "deleted" ? t("Nothing was deleted lately.") : t("No chat is archived.")}</p>`}
    <ul class="other-chats">${chats.map((facts) => html`<${OtherRow} key=${facts.id} name=${name} facts=${facts} onBack=${() => back(facts.id)} />`)}</ul>
    ${hasMore && html`<button type="button" class="button button-small sidebar-wide" onClick=${() => read(chats)}>${t("More")}</button>`}`;
}

/** @param {{name: "archived" | "deleted", facts: ChatFacts, onBack: () => void}} props */
function OtherRow({ name, facts, onBack }) {
  const title = titleOf(facts);
  const open = (/** @type {MouseEvent} */ event) => openHere(event, facts.id);
  return html`<li class="chat-row">${
    name === "archived"
      ? html`<a class="chat-link" data-stop href=${`/c/${facts.id}`} onClick=${open}><span class="chat-title">${title}</span></a>`
      : html`<span class="chat-link"><span class="chat-title">${title}</span></span>`
  }<button type="button" class="button button-small" aria-label=${name === "archived" ? t("Unarchive {title}", { title }) : t("Restore {title}", { title })} onClick=${onBack}>${name === "archived" ? t("Unarchive") : t("Restore")}</button></li>`;
}
