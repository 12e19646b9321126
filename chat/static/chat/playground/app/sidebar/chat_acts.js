// @ts-check
// What the left column does with conversations. All of it can be taken back.
import * as acts from "../core/acts.js";
import { api, refusalOf } from "../core/api.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { searchAgain } from "./search.js";
import { renaming } from "./state.js";

/** @import { ChatFacts } from "../core/types.js" */

const MAX_IDS = 1000; // of one request

/** What the last line about deletions takes back; `shown`: the chat that was shown, "" if it was none of them. @type {{line: object | null, ids: string[], shown: string}} */
let deleted = { line: null, ids: [], shown: "" };

/** Delete at once, and offer to take it back, with what the line that is still there has told of. @param {string[]} chosen */
export async function deleteChats(chosen) {
  const shown = app.chat.value.id;
  const { ids, problem } = await done("delete", chosen);
  if (ids.length === 0) return;
  const before = app.notice.value === deleted.line ? deleted : { ids: [], shown: "" };
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
  tellDeleted([...new Set([...before.ids, ...ids])], ids.includes(shown) ? shown : before.shown, problem);
}

/** @param {string[]} ids @param {string} shown @param {string} problem */
function tellDeleted(ids, shown, problem) {
  tellDone(plural(ids.length, "The chat is deleted; it can be restored for a day.", "{n} chats are deleted; they can be restored for a day."), problem, async () => {
    if ((await restoreChats(ids)) && shown) await acts.openChat(shown);
  });
  deleted = { line: app.notice.value, ids, shown };
}

/** The runs of a deleted chat end, and are saved no more. @param {string} id */
function forget(id) {
  const open = app.openChats.get(id);
  if (open) acts.stop(open);
  app.chatList.deleted.add(id);
}

/** Return whether all are there again. @param {string[]} chosen */
export async function restoreChats(chosen) {
  const { ids, problem } = await done("restore", chosen);
  for (const id of ids) app.chatList.deleted.delete(id);
  await app.chatList.refresh();
  tellAll(ids);
  searchAgain();
  if (problem) acts.tell(problem);
  return !problem;
}

/** Return whether they are where they shall be, some at least. @param {string[]} chosen @param {boolean} isArchived */
export async function archiveChats(chosen, isArchived = true) {
  const { ids, formers, problem } = await changeAll(chosen, { is_archived: isArchived });
  if (ids.length === 0) return false;
  if (isArchived) app.chatList.remove(ids);
  await app.chatList.refresh();
  const num = formers.length;
  const text = isArchived ? plural(num, "The chat is archived.", "{n} chats are archived.") : plural(num, "The chat is in the list again.", "{n} chats are in the list again.");
  tellDone(num ? text : "", problem, () => archiveChats(formers.map(({ id }) => id), !isArchived));
  return true;
}

/** Put several chats into a folder, "" for none. @param {string[]} chosen @param {string} folder */
export async function moveChats(chosen, folder) {
  const { ids, formers, problem } = await changeAll(chosen, { folder });
  if (ids.length === 0) return;
  await app.chatList.refresh();
  const num = formers.length;
  const text = folder ? plural(num, "The chat is in the folder.", "{n} chats are in the folder.") : plural(num, "The chat is in no folder.", "{n} chats are in no folder.");
  tellDone(num ? text : "", problem, async () => {
    for (const name of new Set(formers.map((former) => former.folder))) {
      await changeAll(formers.filter((former) => former.folder === name).map(({ id }) => id), { folder: name });
    }
    await app.chatList.refresh();
  });
}

/** @typedef {{id: string, folder: string, is_archived: boolean}} Former how a chat was before a change of several */

/** Change several chats. `formers`: how those were that were not so already. @param {string[]} chosen @param {object} fields */
async function changeAll(chosen, fields) {
  /** @type {Former[]} */
  const formers = [];
  const { ids, problem } = await done("change", chosen, fields, (/** @type {{data: Former[]}} */ answer) => formers.push(...answer.data));
  for (const { id } of formers) {
    const open = app.openChats.get(id);
    if (open && "folder" in fields) open.folder.value = String(fields.folder);
    app.chatList.versions.delete(id);
  }
  tellAll(ids);
  searchAgain();
  return { ids, formers, problem };
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
 * Ask something of the server for several chats, as many as it takes at once. Return those for which it answered, and why it refused others;
 * where it refused all, that is said.
 * @param {string} path @param {string[]} chosen @param {object} [fields] @param {(answer: any) => void} [use]
 */
async function done(path, chosen, fields = {}, use = () => {}) {
  let num = 0;
  const problem = await refusalOf(async () => {
    for (; num < chosen.length; num += MAX_IDS) use(await api("POST", path, { ids: chosen.slice(num, num + MAX_IDS), ...fields }));
  });
  const ids = chosen.slice(0, num);
  if (ids.length === 0 && problem) acts.tell(problem);
  return { ids, problem };
}

/** Tell what was done, "" for nothing, with a way back, and why not all of it. @param {string} text @param {string} problem @param {() => unknown} run */
function tellDone(text, problem, run) {
  const all = [text, problem && t("Not all was done: {problem}", { problem })].filter(Boolean).join(" ");
  if (all) app.notice.value = { text: all, isProblem: Boolean(problem), ...(text ? { act: t("Undo"), run } : {}) };
}

/** @param {string[]} ids */
function tellAll(ids) {
  for (const id of ids) app.tellTabs(id);
}
