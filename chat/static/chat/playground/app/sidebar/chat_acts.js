// @ts-check
// What the left column does with conversations. All of it can be taken back.
import * as acts from "../core/acts.js";
import { api, ApiProblem } from "../core/api.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { renaming } from "./state.js";

/** @import { ChatFacts } from "../core/types.js" */

/** Delete at once, and offer to take it back. @param {string[]} ids */
export async function deleteChats(ids) {
  const shown = app.chat.value.id;
  if (!(await done("POST", "delete", { ids }))) return;
  for (const id of ids) forget(id);
  app.chatList.remove(ids);
  if (ids.includes(shown)) acts.newChat();
  for (const id of ids) app.openChats.delete(id);
  tellAll(ids);
  app.notice.value = {
    text: plural(ids.length, "The chat is deleted; it can be restored for a day.", "{n} chats are deleted; they can be restored for a day."),
    act: t("Undo"),
    run: async () => {
      if ((await restoreChats(ids)) && ids.includes(shown)) await acts.openChat(shown);
    },
  };
}

/** The runs of a deleted chat end, and are saved no more. @param {string} id */
function forget(id) {
  const open = app.openChats.get(id);
  if (open) acts.stop(open);
  app.chatList.deleted.add(id);
}

/** @param {string[]} ids */
export async function restoreChats(ids) {
  if (!(await done("POST", "restore", { ids }))) return false;
  for (const id of ids) app.chatList.deleted.delete(id);
  await app.chatList.refresh();
  tellAll(ids);
  return true;
}

/** @param {string[]} ids @param {boolean} isArchived */
export async function archiveChats(ids, isArchived = true) {
  for (const id of ids) await acts.changeFields(id, { is_archived: isArchived });
  app.notice.value = {
    text: isArchived ? plural(ids.length, "The chat is archived.", "{n} chats are archived.") : plural(ids.length, "The chat is in the list again.", "{n} chats are in the list again."),
    act: t("Undo"),
    run: () => archiveChats(ids, !isArchived),
  };
}

/** @param {ChatFacts} facts */
export const togglePin = (facts) => acts.changeFields(facts.id, { is_pinned: !facts.pinned_at });

/** @param {ChatFacts} facts @param {string} title */
export async function rename(facts, title) {
  renaming.value = "";
  const plain = title.trim();
  if (!plain || plain === facts.title) return;
  app.chatList.put({ ...facts, title: plain });
  if (!(await acts.changeFields(facts.id, { title: plain }))) app.chatList.put(facts);
}

/** @param {ChatFacts} facts @param {string} folder "" for none */
export async function moveTo(facts, folder) {
  if (folder === facts.folder) return;
  await acts.changeFields(facts.id, { folder });
  app.chatList.refreshSoon(); // a folder that has become empty is gone
}

/** @param {ChatFacts} facts @param {string[]} tags */
export const setTags = (facts, tags) => acts.changeFields(facts.id, { tags });

/** @param {string} method @param {string} path @param {unknown} body */
async function done(method, path, body) {
  try {
    await api(method, path, body);
    return true;
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    acts.tell(error);
    return false;
  }
}

/** @param {string[]} ids */
function tellAll(ids) {
  for (const id of ids) app.tellTabs(id);
}
