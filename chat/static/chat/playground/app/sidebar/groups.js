// @ts-check
import { moment, t } from "../core/i18n.js";

/** @import { ChatFacts } from "../core/types.js" */

const DAY_S = 24 * 3600;

/**
 * Divide conversations, the latest first, by the time of their last change.
 * @param {ChatFacts[]} chats
 * @param {Date} [now]
 * @returns {{title: string, chats: ChatFacts[]}[]}
 */
export function groupsByTime(chats, now = new Date()) {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime() / 1000;
  /** @type {Map<string, ChatFacts[]>} */
  const groups = new Map();
  for (const facts of chats) {
    const title = groupOf(facts.updated_at, midnight, now);
    const group = groups.get(title);
    if (group) group.push(facts);
    else groups.set(title, [facts]);
  }
  return [...groups].map(([title, group]) => ({ title, chats: group }));
}

/** @param {number} at seconds @param {number} midnight @param {Date} now */
function groupOf(at, midnight, now) {
  if (at >= midnight) return t("Today");
  if (at >= midnight - DAY_S) return t("Yesterday");
  if (at >= midnight - 7 * DAY_S) return t("Last 7 days");
  if (at >= midnight - 30 * DAY_S) return t("Last 30 days");
  const date = new Date(1000 * at);
  const isThisYear = date.getFullYear() === now.getFullYear();
  return moment(date, { month: "long", year: isThisYear ? undefined : "numeric" });
}
