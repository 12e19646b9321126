// @ts-check
// The files of a question. Each is a content part that has the file's name as `attachment`, and what is shown of it as `about`; no request has
// these marks. A text file is a text; an image, a sound or a document is a file that the server keeps, which the part names, or in a chat
// that is not stored its contents as a data: URL.
import { textOf } from "./answers.js";
import { mark, t } from "./i18n.js";

/** @import { Content, DraftFile, Media, MediaKind, Part, TurnFacts } from "./types.js" */

/** Where each kind of part has its contents, and what models say that they take; null: every model does. @type {Record<MediaKind, {place: string, modality: string | null}>} */
export const KINDS = {
  image_url: { place: "url", modality: "image" },
  input_audio: { place: "data", modality: "audio" },
  file: { place: "file_data", modality: null },
};
const NAMES = { image_url: mark("Image"), input_audio: mark("Sound"), file: mark("File") };
const SCHEME = "attachment:";
const KEPT = /^attachment:([a-z0-9]+)$/;
const DATA_HEAD = /^data:[^,]*,/;

/** What a part calls a file that the server keeps. @param {string} id */
export const keptUrl = (id) => SCHEME + id;

/** Where a file is shown from; undefined: nowhere, as a chat that was imported may name any address.
 * @param {Media} media @returns {string | undefined} */
export function sourceOf({ url }) {
  const id = KEPT.exec(url)?.[1];
  if (id) return `/playground/api/files/${id}`;
  return url.startsWith("data:") ? url : undefined;
}

/** A message with its files, each a part of its own. @param {string} text @param {DraftFile[]} [files] @returns {Content} */
export function contentOf(text, files = []) {
  if (files.length === 0) return text;
  const parts = files.map(partOf);
  return text ? [...parts, { type: "text", text }] : parts;
}

/** @param {DraftFile} file @returns {Part} */
function partOf({ name, text, media }) {
  if (!media) return { type: "text", text: `${name}:\n\n${text}`, attachment: name };
  const { kind, url, format, ...about } = media;
  const more = kind === "file" ? { filename: name } : kind === "input_audio" ? { format } : {};
  return { type: kind, [kind]: { [KINDS[kind].place]: url, ...more }, attachment: name, about };
}

/** A content as a request has it. @param {Content | undefined} content */
export const sentContent = (content) => (Array.isArray(content) ? content.map(sentPart) : (content ?? ""));

/** @param {Part} part @returns {Part} */
function sentPart({ attachment: _, about: __, ...part }) {
  const sound = part.input_audio;
  return sound ? { ...part, input_audio: { ...sound, data: sound.data.replace(DATA_HEAD, "") } } : part;
}

/** What was typed as a question, and its files; of another turn all of its text. @param {TurnFacts} facts @returns {{text: string, files: DraftFile[]}} */
export function typedAndFiles({ role, content }) {
  if (role !== "user" || !Array.isArray(content)) return { text: textOf(content), files: [] };
  return { text: textOf(content.filter((part) => part.attachment === undefined)), files: content.flatMap(fileFrom) };
}

/** @param {Part} part @returns {DraftFile[]} */
function fileFrom(part) {
  const { attachment: name, text = "" } = part;
  const media = mediaFrom(part);
  if (media) return [{ name: String(name ?? part.file?.filename ?? t(NAMES[media.kind])), text: "", media }];
  if (name === undefined) return [];
  const head = `${name}:\n\n`;
  return [{ name: String(name), text: text.startsWith(head) ? text.slice(head.length) : text }];
}

/** The image, sound or document that a part is. @param {Part} part @returns {Media | undefined} */
function mediaFrom(part) {
  if (!Object.hasOwn(KINDS, part.type)) return undefined;
  const kind = /** @type {MediaKind} */ (part.type);
  const value = /** @type {Record<string, any> | undefined} */ (part[kind]);
  const url = value?.[KINDS[kind].place];
  if (typeof url !== "string") return undefined;
  return { num_bytes: 0, ...part.about, kind, url, ...(kind === "input_audio" ? { format: String(value?.format) } : {}) };
}

/** The images, sounds and documents of messages. @param {TurnFacts[]} path @param {DraftFile[]} [more] */
export const mediaIn = (path, more = []) => [...path.flatMap((facts) => typedAndFiles(facts).files), ...more].flatMap(({ media }) => media ?? []);
