// @ts-check
import { html, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { textOf } from "../core/answers.js";
import { typedAndFiles } from "../core/attached.js";
import { t } from "../core/i18n.js";
import { Files } from "./files.js";
import { fit } from "./fitting.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */
/** @import { DraftFile } from "../core/types.js" */

/**
 * What the form begins with: what was kept of it, else what the turn has; `before`: the text of the turn; `all`: its files.
 * @param {Chat} open
 * @param {Turn} turn
 * @returns {{before: string, text: string, all: DraftFile[], files: DraftFile[]}}
 */
function begin(open, turn) {
  const { text, files: all } = typedAndFiles(turn.facts);
  const before = turn.facts.role === "assistant" ? textOf(turn.facts.content, open.shownChoice(turn)) : text;
  const { edit } = open.draft.peek();
  return edit?.turn === turn.id ? { before, text: edit.text, all, files: edit.files ?? all } : { before, text: before, all, files: all };
}

/** What keys do in a text that is changed: Ctrl+Enter saves it, Esc leaves it. @param {() => void} save @param {() => void} leave */
export const editKeys = (save, leave) => (/** @type {KeyboardEvent} */ event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
  else if (event.key === "Escape") leave();
  else return;
  event.preventDefault();
  event.stopPropagation();
};

/** The text of a turn, to be changed; of a question also which files it has. @param {{open: Chat, turn: Turn}} props */
export function EditForm({ open, turn }) {
  const ref = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const isQuestion = turn.facts.role === "user";
  const [{ before, text: first, all, files: firstFiles }] = useState(() => begin(open, turn));
  const [files, setFiles] = useState(firstFiles);
  useLayoutEffect(() => {
    const area = /** @type {HTMLTextAreaElement} */ (ref.current);
    fit(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
    // The button that opened the form is there again once the form is gone.
    return () => void requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(`[data-turn="${turn.id}"] :is(button[title^="${t("Edit")}"], .message-acts > .menu > summary)`))?.focus());
  }, []);
  const leave = () => acts.leaveEdit(open);
  const save = () => {
    const text = ref.current?.value.trim() ?? "";
    if ((text || files.length) && (text !== before || isQuestion)) acts.edit(open, turn, text, files);
    else leave();
  };
  // Without the files while all are there: with each key they would be kept once more.
  const keep = (/** @type {DraftFile[]} */ left) => acts.keepEdit(open, turn, ref.current?.value ?? "", left.length === all.length ? undefined : left);
  const input = (/** @type {any} */ event) => {
    fit(event.target);
    keep(files);
  };
  const remove = (/** @type {number} */ at) => {
    const left = files.filter((_, other) => other !== at);
    setFiles(left);
    keep(left);
  };
  return html`<form class="edit-form" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), save())}>
    <${Files} files=${files} onRemove=${remove} />
    <textarea ref=${ref} class="input" aria-label=${t("Edit the message")} onInput=${input} onKeyDown=${editKeys(save, leave)}>${first}</textarea>
    <div class="edit-acts">
      <button type="button" class="button button-small" onClick=${leave}>${t("Cancel")}</button>
      <button type="submit" class="button button-small button-primary">${isQuestion ? t("Save & send") : t("Save")}</button>
    </div>
  </form>`;
}
