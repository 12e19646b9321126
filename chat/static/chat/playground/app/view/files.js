// @ts-check
// The files of a message, before it is sent and after: images as they look, texts by name and size. Each opens in a dialog.
import { html, useMemo, useState } from "../../../vendor/preact.js";
import { sourceOf } from "../core/attached.js";
import { fileSize, number, pixels, t } from "../core/i18n.js";
import { sizeOf } from "./attachments.js";
import { CopyButton, Dialog, IconButton } from "./controls.js";
import { Icon } from "./icons.js";
import { closeDialog, openDialog } from "./layers.js";
import { lazy } from "./lazy.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { DraftFile, Media } from "../core/types.js" */

const SizeMenu = lazy(async () => (await import("./picture_size.js")).SizeMenu);
/** Longer texts would hold the page up. */
const MAX_SHOWN_CHARS = 20_000;

/** @typedef {{open: Chat, change: (file: DraftFile, make: () => Promise<{read: DraftFile[], problem: string}>) => void}} Sizing how a file becomes another one */

/** `pending`: the names of files that are being read. @param {{files: DraftFile[], pending?: string[], onRemove?: (at: number) => void, sizing?: Sizing}} props */
export function Files({ files, pending = [], onRemove, sizing }) {
  if (files.length + pending.length === 0) return null;
  return html`<ul class="files" aria-label=${t("Attached files")}>
    ${files.map((file, at) => {
      const Shown = file.media ? SHOWN[file.media.kind] : FileChip;
      return html`<${Shown} key=${`${at} ${file.name}`} file=${file} sizing=${sizing} onRemove=${onRemove && (() => onRemove(at))} />`;
    })}
    ${pending.map((name, at) => html`<li key=${`pending ${at}`} class="chip is-pending"><span class="file-name">${name}</span><span class="hint">${t("Being read …")}</span></li>`)}
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

/** A document, by its name and size; a press saves it. @param {{file: DraftFile, onRemove?: () => void}} props */
function DocumentChip({ file, onRemove }) {
  const { name } = file;
  const media = /** @type {Media} */ (file.media);
  return html`<li class="chip">
    <a class="file-open" href=${sourceOf(media)} download=${name} title=${t("Save {name}", { name })}>
      <${Icon} name="document" size=${16} /><span class="file-name">${name}</span><span class="hint">${fileSize(media.num_bytes)}</span></a>
    ${onRemove && html`<${IconButton} icon="close" size=${14} label=${t("Remove {name}", { name })} onClick=${onRemove} />`}
  </li>`;
}

/** A sound, with a player. @param {{file: DraftFile, onRemove?: () => void}} props */
function SoundChip({ file, onRemove }) {
  const { name } = file;
  const media = /** @type {Media} */ (file.media);
  return html`<li class="sound">
    <audio controls preload="metadata" src=${sourceOf(media)} aria-label=${name}></audio>
    <span class="sound-about"><span class="file-name">${name}</span><span class="hint">${fileSize(media.num_bytes)}</span></span>
    ${onRemove && html`<${IconButton} icon="close" size=${14} label=${t("Remove {name}", { name })} onClick=${onRemove} />`}
  </li>`;
}

/** An image: small with its size before it is sent, larger in the conversation. @param {{file: DraftFile, onRemove?: () => void, sizing?: Sizing}} props */
function Picture({ file, onRemove, sizing }) {
  const { name } = file;
  const media = /** @type {Media} */ (file.media);
  const [isGone, setGone] = useState(sourceOf(media) === undefined);
  const image = html`<img src=${sourceOf(media)} alt=${name} width=${media.width} height=${media.height} loading="lazy" decoding="async" onError=${() => setGone(true)} />`;
  const open = html`<button type="button" class="picture-open" title=${t("Show {name} large", { name })} onClick=${() => openDialog(() => html`<${PictureDialog} file=${file} />`)}>${image}</button>`;
  return html`<li class=${`picture ${onRemove ? "is-draft" : ""}`}>
    ${isGone ? html`<span class="picture-gone"><${Icon} name="image" size=${20} />${!onRemove && html`<span>${t("{name} is not there any more.", { name })}</span>`}</span>` : open}
    ${onRemove && html`<span class="picture-about"><span class="file-name">${name}</span><span class="hint">${isGone ? t("Not there any more") : factsOf(media)}</span></span>
      ${sizing && !isGone && html`<${SizeMenu} file=${file} sizing=${sizing} />`}
      <${IconButton} icon="close" size=${14} label=${t("Remove {name}", { name })} onClick=${onRemove} />`}
  </li>`;
}

/** @param {{file: DraftFile}} props */
function PictureDialog({ file }) {
  const media = /** @type {Media} */ (file.media);
  return html`<${Dialog} title=${file.name} class="is-wide" onClose=${closeDialog}>
    <img class="picture-large" src=${sourceOf(media)} alt=${file.name} width=${media.width} height=${media.height} />
    <p class="hint">${factsOf(media)} · <a href=${sourceOf(media)} download=${file.name}>${t("Save the image")}</a></p>
  <//>`;
}

/** Its width and height, from what to what it was made smaller, and its size. @param {Media} media */
function factsOf({ width, height, was, num_bytes: size }) {
  const sides = [was, [width, height]].flatMap((pair) => (pair?.[0] ? `${pixels(Number(pair[0]))} × ${pixels(Number(pair[1]))}` : []));
  return [sides.join(" → "), size ? fileSize(size) : ""].filter(Boolean).join(" · ");
}

const SHOWN = { image_url: Picture, input_audio: SoundChip, file: DocumentChip };
