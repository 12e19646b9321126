// @ts-check
// What the left column does with conversations. All of it can be taken back.
import * as acts from "../core/acts.js";
import { api } from "../core/api.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { searchAgain } from "./search.js";
import { renaming } from "./state.js";

/** @import { ChatFacts } from "../core/types.js" */

const MAX_IDS = 1000; // of one request

/** Delete at once, and offer to take it back. @param {string[]} chosen */
export async function deleteChats(chosen) {
  const shown = app.chat.value.id;
  const ids = await done("delete", chosen);
  if (ids.length === 0) return;
  for (const id of ids) forget(id);
  app.chatList.remove(ids);
  if (ids.includes(app.behind.value?.id ?? "")) app.behind.value = null;
  if (ids.includes(shown)) acts.newChat();
  for (const id of ids) {
    app.openChats.delete(id);
    app.drafts.unwatch(id);
  }
  tellAll(ids);
  searchAgain();
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

/** Return whether all are there again. @param {string[]} chosen */
export async function restoreChats(chosen) {
  const ids = await done("restore", chosen);
  for (const id of ids) app.chatList.deleted.delete(id);
  await app.chatList.refresh();
  tellAll(ids);
  searchAgain();
  return ids.length === chosen.length;
}

/** Return whether it was done to any. @param {string[]} chosen @param {boolean} isArchived */
export async function archiveChats(chosen, isArchived = true) {
  const formers = await changeAll(chosen, { is_archived: isArchived });
  const ids = formers.map(({ id }) => id);
  if (ids.length === 0) return false;
  if (isArchived) app.chatList.remove(ids);
  await app.chatList.refresh();
  app.notice.value = {
    text: isArchived ? plural(ids.length, "The chat is archived.", "{n} chats are archived.") : plural(ids.length, "The chat is in the list again.", "{n} chats are in the list again."),
    act: t("Undo"),
    run: () => archiveChats(ids, !isArchived),
  };
  return true;
}

/** Put several chats into a folder, "" for none. @param {string[]} chosen @param {string} folder */
export async function moveChats(chosen, folder) {
  const formers = await changeAll(chosen, { folder });
  const ids = formers.map(({ id }) => id);
  if (ids.length === 0) return;
  await app.chatList.refresh();
  app.notice.value = {
    text: folder ? plural(ids.length, "The chat is in the folder.", "{n} chats are in the folder.") : plural(ids.length, "The chat is in no folder.", "{n} chats are in no folder."),
    act: t("Undo"),
    run: async () => {
      for (const name of new Set(formers.map((former) => former.folder))) {
        await changeAll(formers.filter((former) => former.folder === name).map(({ id }) => id), { folder: name });
      }
      await app.chatList.refresh();
    },
  };
}

/** @typedef {{id: string, folder: string, is_archived: boolean}} Former how a chat was before a change of several */

/** Change several chats and return how those were that have changed. @param {string[]} ids @param {object} fields */
async function changeAll(ids, fields) {
  /** @type {Former[]} */
  const formers = [];
  await done("change", ids, fields, (/** @type {{data: Former[]}} */ answer) => formers.push(...answer.data));
  for (const { id } of formers) {
    const open = app.openChats.get(id);
    if (open && "folder" in fields) open.folder.value = String(fields.folder);
    app.chatList.versions.delete(id);
  }
  tellAll(ids);
  searchAgain();
  return formers;
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

/**
 * Ask something of the server for several chats, as many as it takes at once, and return those for which it was done.
 * @param {string} path @param {string[]} ids @param {object} [fields] @param {(answer: any) => void} [use]
 */
async function done(path, ids, fields = {}, use = () => {}) {
  let num = 0;
  await acts.attempt(async () => {
    for (; num < ids.length; num += MAX_IDS) use(await api("POST", path, { ids: ids.slice(num, num + MAX_IDS), ...fields }));
  });
  return ids.slice(0, num);
}

/** @param {string[]} ids */
function tellAll(ids) {
  for (const id of ids) app.tellTabs(id);
}
