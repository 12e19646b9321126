// @ts-check
import { html, useEffect, useRef } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { Dialog } from "../view/controls.js";
import { closeDialog } from "../view/layers.js";
import { moveTo } from "./chat_acts.js";

/** @import { ChatFacts } from "../core/types.js" */

/** Put a chat into a new folder. @param {{facts: ChatFacts}} props */
export function FolderDialog({ facts }) {
  const ref = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => ref.current?.focus(), []);
  const move = (/** @type {Event} */ event) => {
    event.preventDefault();
    const name = ref.current?.value.trim();
    if (!name) return;
    closeDialog();
    moveTo(facts, name);
  };
  return html`<${Dialog} title=${t("New folder")} class="is-small" onClose=${closeDialog}>
    <form class="form" onSubmit=${move}>
      <label class="field"><span>${t("Name")}</span><input ref=${ref} class="input" id="folder-name" maxlength="100" required autocomplete="off" /></label>
      <div class="dialog-acts"><button type="button" class="button" onClick=${closeDialog}>${t("Cancel")}</button>
        <button class="button button-primary" type="submit">${t("Move the chat there")}</button></div>
    </form>
  <//>`;
}
