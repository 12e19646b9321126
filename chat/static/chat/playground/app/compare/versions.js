// @ts-check
// The versions of a message, two by two.
import { t } from "../core/i18n.js";
import { saidIn, showDifferences } from "./differences.js";
import { isBlind, panes } from "./panes.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

/** Show the differences of a turn and the version before it, or of the first two. @param {Chat} open @param {Turn} turn */
export function showVersions(open, turn) {
  const at = Math.max(1, open.siblings(turn).indexOf(turn));
  showDifferences(t("Differences of the versions"), () => versionsOf(open, turn), [at - 1, at]);
}

/** @param {Chat} open @param {Turn} turn */
function versionsOf(open, turn) {
  open.revision.value; // read, so that a change is noticed
  const isNameless = isBlind.value && panes.value.some(({ chat }) => chat === open);
  return open.siblings(turn).map((version, at) => {
    const name = t("Version {n}", { n: at + 1 });
    const { model } = version.facts;
    return { id: version.id, name: model && !isNameless ? `${name} · ${model}` : name, text: saidIn(open, version) };
  });
}
