// @ts-check
// What is done with the picked chats.
import { html } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { IconButton, Menu, MenuAct } from "../view/controls.js";
import { Icon } from "../view/icons.js";
import { isPhone, openDialog, toggleSidebar } from "../view/layers.js";
import { archiveChats, deleteChats, moveChats } from "./chat_acts.js";
import { ExportMenu } from "./export_acts.js";
import { FolderDialog } from "./folder_dialog.js";
import { pickShown } from "./picking.js";
import { picked } from "./state.js";

/** @import { IconName } from "../view/icons.js" */

export function endPicking() {
  picked.value = null;
  requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(".view-menu summary"))?.focus());
}

/** @param {{chosen: Set<string>}} props */
export function PickedBar({ chosen }) {
  const ids = [...chosen];
  const isNone = ids.length === 0;
  const run = (/** @type {(ids: string[]) => void} */ act) => () => {
    endPicking();
    if (isPhone.value) toggleSidebar(false); // it covers the line that takes it back
    act(ids);
  };
  return html`<div class="picked-bar" role="group" aria-label=${t("Selected chats")}>
    <div class="picked-head"><span role="status">${t("{n} selected", { n: ids.length })}</span>
      <button type="button" class="button button-quiet button-small" onClick=${pickShown}>${t("All shown")}</button>
      <${IconButton} icon="close" size=${16} label=${t("End the selection")} onClick=${endPicking} /></div>
    <div class=${`picked-acts ${isNone ? "is-none" : ""}`} inert=${isNone}>
      <${Menu} class="picked-folder" label=${t("Move to folder")} align="left" button=${html`<${Face} icon="folder">${t("Folder")}<//>`}><${Folders} run=${run} /><//>
      <${Menu} class="picked-export" label=${t("Export")} align="left" button=${html`<${Face} icon="download">${t("Export")}<//>`}><${ExportMenu} fields=${() => ({ ids })} /><//>
      <button type="button" class="button button-quiet" onClick=${run(archiveChats)}><${Face} icon="archive">${t("Archive")}<//></button>
      <button type="button" class="button button-quiet is-danger" onClick=${run(deleteChats)}><${Face} icon="trash">${t("Delete")}<//></button>
    </div>
  </div>`;
}

/** @param {{run: (act: (ids: string[]) => void) => () => void}} props */
function Folders({ run }) {
  const move = (/** @type {string} */ name) => run((ids) => moveChats(ids, name));
  return html`${app.chatList.folders.value.map((name) => html`<${MenuAct} key=${name} icon="folder" onClick=${move(name)}>${name}<//>`)}
    <${MenuAct} icon="plus" onClick=${() => openDialog(() => html`<${FolderDialog} isForSeveral move=${(/** @type {string} */ name) => move(name)()} />`)}>${t("New folder …")}<//>
    <hr /><${MenuAct} icon="close" onClick=${move("")}>${t("Take out of their folders")}<//>`;
}

/** @param {{icon: IconName, children: import("../../../vendor/preact.js").ComponentChildren}} props */
const Face = ({ icon, children }) => html`<${Icon} name=${icon} size=${16} /><span class="picked-name">${children}</span>`;
