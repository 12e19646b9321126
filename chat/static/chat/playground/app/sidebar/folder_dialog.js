// @ts-check
import { html, useEffect, useRef } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { Dialog } from "../view/controls.js";
import { closeDialog } from "../view/layers.js";

/** The name of a new folder for one or several chats. @param {{move: (name: string) => void, isForSeveral?: boolean}} props */
export function FolderDialog({ move, isForSeveral = false }) {
  const ref = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => ref.current?.focus(), []);
  const take = (/** @type {Event} */ event) => {
    event.preventDefault();
    const name = ref.current?.value.trim();
    if (!name) return;
    closeDialog();
    move(name);
  };
  return html`<${Dialog} title=${t("New folder")} class="is-small" onClose=${closeDialog}>
    <form class="form" onSubmit=${take}>
      <label class="field"><span>${t("Name")}</span><input ref=${ref} class="input" id="folder-name" maxlength="100" required autocomplete="off" /></label>
      <div class="dialog-acts"><button type="button" class="button" onClick=${closeDialog}>${t("Cancel")}</button>
        <button class="button button-primary" type="submit">${isForSeveral ? t("Move the chats there") : t("Move the chat there")}</button></div>
    </form>
  <//>`;
}
