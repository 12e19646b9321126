// @ts-check
// The text files of a message, before it is sent and after: name and size, and their text in a dialog, plain.
import { html, useMemo } from "../../../vendor/preact.js";
import { fileSize, number, t } from "../core/i18n.js";
import { sizeOf } from "./attachments.js";
import { CopyButton, Dialog, IconButton } from "./controls.js";
import { Icon } from "./icons.js";
import { closeDialog, openDialog } from "./layers.js";

/** @import { DraftFile } from "../core/types.js" */

/** Longer texts would hold the page up. */
const MAX_SHOWN_CHARS = 20_000;

/** @param {{files: DraftFile[], onRemove?: (at: number) => void}} props */
export function Files({ files, onRemove }) {
  if (files.length === 0) return null;
  return html`<ul class="files" aria-label=${t("Attached files")}>
    ${files.map((file, at) => html`<${FileChip} key=${`${at} ${file.name}`} file=${file} onRemove=${onRemove && (() => onRemove(at))} />`)}
  </ul>`;
}

/** @param {{file: DraftFile, onRemove?: () => void}} props */
function FileChip({ file, onRemove }) {
  const { name, text } = file;
  const size = useMemo(() => fileSize(sizeOf(text)), [text]);
  return html`<li class="chip">
    <button type="button" class="file-open" title=${t("Show the text of {name}", { name })} onClick=${() => openDialog(() => html`<${FileDialog} file=${file} size=${size} />`)}>
      <${Icon} name="clip" size=${14} /><span class="file-name">${name}</span><span class="hint">${size}</span></button>
    ${onRemove && html`<${IconButton} icon="close" size=${14} label=${t("Remove {name}", { name })} onClick=${onRemove} />`}
  </li>`;
}

/** @param {{file: DraftFile, size: string}} props */
function FileDialog({ file: { name, text }, size }) {
  const more = text.length - MAX_SHOWN_CHARS;
  return html`<${Dialog} title=${name} onClose=${closeDialog}>
    <p class="file-facts hint">${size} <${CopyButton} text=${() => text} /></p>
    <pre class="message-raw" tabindex="0" role="region" aria-label=${t("Text of {name}", { name })}>${text.slice(0, MAX_SHOWN_CHARS)}</pre>
    ${more > 0 && html`<p class="hint">${t("{n} more characters are in the file and not shown here.", { n: number(more) })}</p>`}
  <//>`;
}
