// @ts-check
// Two answers side by side, with the words that only one of them has.
import { html, useEffect, useState } from "../../../vendor/preact.js";
import { textOf } from "../core/answers.js";
import { plural, t } from "../core/i18n.js";
import { Dialog } from "../view/controls.js";
import { closeDialog, openDialog } from "../view/layers.js";
import { isBlind, lastAnswer, paneName, panes } from "./panes.js";

/** @import { ChangeObject } from "../../../vendor/diff.js" */

export const showDifferences = () => openDialog(() => html`<${Differences} />`);

/** @param {number} at */
function nameOf(at) {
  const { model } = panes.value[at].chat.settings.value;
  return isBlind.value ? paneName(at) : `${paneName(at)} · ${model}`;
}

/** @param {number} at */
function answerOf(at) {
  const pane = panes.value[at];
  const turn = lastAnswer(pane);
  return turn ? textOf(turn.facts.content, pane.chat.shownChoice(turn)) : "";
}

function Differences() {
  const [[left, right], setPair] = useState([0, 1]);
  const [changes, setChanges] = useState(/** @type {ChangeObject<string>[] | null} */ (null));
  const [one, other] = [answerOf(left), answerOf(right)];
  useEffect(() => {
    let isOver = false;
    setChanges(null);
    import("../../../vendor/diff.js").then(({ diffWordsWithSpace }) => {
      if (!isOver) setChanges(diffWordsWithSpace(one, other));
    });
    return () => {
      isOver = true;
    };
  }, [one, other]);
  const pick = (/** @type {string} */ label, /** @type {number} */ value, /** @type {(at: number) => void} */ onPick) =>
    html`<select class="input" aria-label=${label} value=${value} onChange=${(/** @type {any} */ event) => onPick(Number(event.target.value))}>
      ${panes.value.map((pane, at) => html`<option key=${pane.id} value=${at}>${nameOf(at)}</option>`)}</select>`;
  const num = (changes ?? []).filter(({ added, removed }) => added || removed).reduce((sum, { value }) => sum + (value.match(/\S+/g)?.length ?? 0), 0);
  return html`<${Dialog} title=${t("Differences of the last answers")} class="is-wide differences" onClose=${closeDialog}>
    <p class="hint" role="status">${changes === null ? t("Comparing …") : num === 0 ? t("The two answers are the same.") : plural(num, "One word is only in one of the answers.", "{n} words are only in one of the answers.")}</p>
    <div class="differences-pair">
      <section>${pick(t("Left answer"), left, (at) => setPair([at, right]))}<div class="differences-text" tabindex="0" role="group" aria-label=${t("Left answer")}>
        ${changes?.filter(({ added }) => !added).map(({ value, removed }, at) => (removed ? html`<del key=${at}>${value}</del>` : value))}</div></section>
      <section>${pick(t("Right answer"), right, (at) => setPair([left, at]))}<div class="differences-text" tabindex="0" role="group" aria-label=${t("Right answer")}>
        ${changes?.filter(({ removed }) => !removed).map(({ value, added }, at) => (added ? html`<ins key=${at}>${value}</ins>` : value))}</div></section>
    </div>
  <//>`;
}
