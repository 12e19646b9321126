// @ts-check
// Two texts side by side, with the words that only one of them has.
import { html, useEffect, useState } from "../../../vendor/preact.js";
import { textOf } from "../core/answers.js";
import { plural, t } from "../core/i18n.js";
import { Dialog } from "../view/controls.js";
import { closeDialog, openDialog } from "../view/layers.js";

/** @import { ChangeObject } from "../../../vendor/diff.js" */
/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

/** Texts that differ in nearly all of their words take minutes. */
const MAX_MS = 1000;
/** A running answer is compared once nothing has come for so long. */
const QUIET_MS = 500;

/** @typedef {{id: string, name: string, text: string}} Version */

/**
 * Show the differences of two texts, which can be exchanged for others.
 * @param {string} title
 * @param {() => Version[]} read all texts to choose from, as they are by now
 * @param {[number, number]} [pair] which of them are shown first
 */
export const showDifferences = (title, read, pair = [0, 1]) => openDialog(() => html`<${Differences} title=${title} read=${read} pair=${pair} />`);

/** All that a turn says: the text of the choice that is shown, and its calls. @param {Chat} open @param {Turn} turn */
export function saidIn(open, turn) {
  const shown = open.shownChoice(turn);
  const calls = (turn.choices[shown]?.calls ?? []).map(({ name, arguments: text }) => `${name}(${text})`);
  return [textOf(turn.facts.content, shown), ...calls].filter(Boolean).join("\n\n");
}

/** @typedef {{pair: number[], changes: ChangeObject<string>[], isTooMuch: boolean}} Found */

/** What changes between two texts, null until that is known; while they grow, what has changed before. @param {string} one @param {string} other @param {number[]} pair */
function useChanges(one, other, pair) {
  const [found, setFound] = useState(/** @type {Found | null} */ (null));
  const isKnown = found?.pair === pair;
  useEffect(() => {
    let isOver = false;
    const compare = async () => {
      const { diffWordsWithSpace } = await import("../../../vendor/diff.js");
      if (isOver) return;
      const changes = diffWordsWithSpace(one, other, { timeout: MAX_MS });
      setFound({ pair, changes: changes ?? [change(one, { removed: true }), change(other, { added: true })], isTooMuch: !changes });
    };
    const timer = setTimeout(compare, isKnown ? QUIET_MS : 0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [one, other, pair]);
  return isKnown ? found : null;
}

/** @param {string} value @param {{added?: boolean, removed?: boolean}} kind @returns {ChangeObject<string>} */
const change = (value, { added = false, removed = false }) => ({ value, added, removed, count: 1 });

/** @param {Found | null} found */
function summaryOf(found) {
  if (!found) return t("Comparing …");
  if (found.isTooMuch) return t("The two texts differ too much to mark single words.");
  const num = found.changes.filter(({ added, removed }) => added || removed).reduce((sum, { value }) => sum + (value.match(/\S+/g)?.length ?? 0), 0);
  return found.changes.some(({ added, removed }) => added || removed)
    ? plural(num, "One word is only in one of the texts.", "{n} words are only in one of the texts.")
    : t("The two texts are the same.");
}

/** @param {{title: string, read: () => Version[], pair: [number, number]}} props */
function Differences({ title, read, pair }) {
  const [shown, setPair] = useState(pair);
  const [left, right] = shown;
  const versions = read();
  const found = useChanges(versions[left].text, versions[right].text, shown);
  const pick = (/** @type {string} */ label, /** @type {number} */ value, /** @type {(at: number) => void} */ onPick) =>
    html`<select class="input" aria-label=${label} value=${value} onChange=${(/** @type {any} */ event) => onPick(Number(event.target.value))}>
      ${versions.map(({ id, name }, at) => html`<option key=${id} value=${at}>${name}</option>`)}</select>`;
  return html`<${Dialog} title=${title} class="is-wide differences" onClose=${closeDialog}>
    <p class="hint" role="status">${summaryOf(found)}</p>
    <div class="differences-pair">
      <section>${pick(t("Left text"), left, (at) => setPair([at, right]))}<div class="differences-text" tabindex="0" role="group" aria-label=${t("Left text")}>
        ${found?.changes.filter(({ added }) => !added).map(({ value, removed }, at) => (removed ? html`<del key=${at}>${value}</del>` : value))}</div></section>
      <section>${pick(t("Right text"), right, (at) => setPair([left, at]))}<div class="differences-text" tabindex="0" role="group" aria-label=${t("Right text")}>
        ${found?.changes.filter(({ removed }) => !removed).map(({ value, added }, at) => (added ? html`<ins key=${at}>${value}</ins>` : value))}</div></section>
    </div>
  <//>`;
}
