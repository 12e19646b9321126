// @ts-check
// The acts for one conversation of the list.
import { html, useState } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { titleOf } from "../core/chat_list.js";
import { t } from "../core/i18n.js";
import { page } from "../core/page.js";
import { keysOfAct } from "../palette/acts_list.js";
import { Icon } from "../view/icons.js";
import { openDialog } from "../view/layers.js";
import { moveInMenu, Popover } from "../view/popover.js";
import { archiveChats, deleteChats, moveTo, togglePin } from "./chat_acts.js";
import { FolderDialog } from "./folder_dialog.js";
import { ShareDialog } from "./share.js";
import { renaming, rowMenu } from "./state.js";
import { TagsDialog } from "./tags_dialog.js";

/** @import { ChatFacts } from "../core/types.js" */
/** @import { ComponentChildren } from "../../../vendor/preact.js" */
/** @import { IconName } from "../view/icons.js" */

const close = () => (rowMenu.value = null);

export function RowMenu() {
  const open = rowMenu.value;
  if (!open) return null;
  return html`<${Popover} key=${open.facts.id} anchor=${open.anchor} onClose=${close}><${Acts} facts=${open.facts} /><//>`;
}

/** @param {{facts: ChatFacts}} props */
function Acts({ facts }) {
  const [part, setPart] = useState("");
  const title = titleOf(facts);
  if (part === "folder") return html`<${FolderActs} facts=${facts} />`;
  if (part === "export") return html`<${ExportActs} facts=${facts} />`;
  return html`<div role="menu" aria-label=${t("Acts for {title}", { title })} onKeyDown=${moveInMenu}>
    <${Act} icon="edit" keys=${keysOfAct("rename-chat")} run=${() => (renaming.value = facts.id)}>${t("Rename")}<//>
    <${Act} icon="pin" run=${() => togglePin(facts)}>${facts.pinned_at ? t("Unpin") : t("Pin")}<//>
    <${Part} icon="folder" run=${() => setPart("folder")}>${t("Move to folder")}<//>
    <${Act} icon="tag" hint=${facts.tags.join(", ")} run=${() => openDialog(() => html`<${TagsDialog} facts=${facts} />`)}>${t("Tags …")}<//>
    <${Act} icon="archive" run=${() => archiveChats([facts.id])}>${t("Archive")}<//>
    <hr />
    <${Part} icon="download" run=${() => setPart("export")}>${t("Export")}<//>
    ${page.sharing && html`<${Act} icon="share" run=${() => openDialog(() => html`<${ShareDialog} facts=${facts} />`)}>${t("Share …")}<//>`}
    <hr />
    <${Act} icon="trash" danger keys=${keysOfAct("delete-chat")} run=${() => deleteChats([facts.id])}>${t("Delete")}<//>
  </div>`;
}

/** @param {{facts: ChatFacts}} props */
function FolderActs({ facts }) {
  return html`<div role="menu" aria-label=${t("Move to folder")} onKeyDown=${moveInMenu}>
    ${app.chatList.folders.value.map(
      (name) => html`<${Act} key=${name} icon=${name === facts.folder ? "check" : "folder"} run=${() => moveTo(facts, name)}>${name}<//>`,
    )}
    <${Act} icon="plus" run=${() => openDialog(() => html`<${FolderDialog} move=${(/** @type {string} */ name) => moveTo(facts, name)} />`)}>${t("New folder …")}<//>
    ${facts.folder && html`<hr /><${Act} icon="close" run=${() => moveTo(facts, "")}>${t("Take out of {folder}", { folder: facts.folder })}<//>`}
  </div>`;
}

/** @param {{facts: ChatFacts}} props */
function ExportActs({ facts }) {
  const formats = [
    { name: "markdown", title: t("Markdown"), hint: t("what is shown") },
    { name: "json", title: t("JSON"), hint: t("all of it") },
    { name: "jsonl", title: t("OpenAI JSONL"), hint: t("what is shown") },
  ];
  return html`<div role="menu" aria-label=${t("Export")} onKeyDown=${moveInMenu}>
    ${formats.map(
      ({ name, title, hint }) => html`<a key=${name} role="menuitem" tabindex="-1" class="menu-act" download href=${`/playground/api/conversations/${facts.id}/export?format=${name}`}
        onClick=${close}><${Icon} name="download" size=${16} /><span>${title}</span><small>${hint}</small></a>`,
    )}
  </div>`;
}

/** @param {{icon: IconName, run: () => void, danger?: boolean, keys?: string, hint?: string, children: ComponentChildren}} props */
function Act({ icon, run, danger, keys, hint, children }) {
  const act = () => {
    close();
    run();
  };
  return html`<button type="button" role="menuitem" tabindex="-1" class=${`menu-act ${danger ? "is-danger" : ""}`} onClick=${act}>
    <${Icon} name=${icon} size=${16} /><span>${children}</span>${hint && html`<small class="menu-hint">${hint}</small>`}${keys && html`<kbd>${keys}</kbd>`}</button>`;
}

/** An act that leads to more of the menu. @param {{icon: IconName, run: () => void, children: ComponentChildren}} props */
function Part({ icon, run, children }) {
  const act = (/** @type {MouseEvent} */ event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).closest(".popover");
    run();
    requestAnimationFrame(() => /** @type {HTMLElement | null} */ (box?.querySelector("[role=menuitem]"))?.focus());
  };
  return html`<button type="button" role="menuitem" tabindex="-1" class="menu-act" aria-haspopup="menu" onClick=${act}>
    <${Icon} name=${icon} size=${16} /><span>${children}</span><${Icon} name="right" size=${14} /></button>`;
}
