// @ts-check
// Takes files into a message: texts as they are, images in a size that models take, each kept by the server before it is sent.
import { ApiProblem, sendFile } from "../core/api.js";
import * as app from "../core/app.js";
import { keptUrl, mediaIn } from "../core/attached.js";
import { fileSize, t } from "../core/i18n.js";
import { page } from "../core/page.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { DraftFile, Media } from "../core/types.js" */

const MAX_TEXT_BYTES = 200_000;
const MAX_FILES = 20;
/** What the server reads beside text. */
const DOCUMENTS = /\.(pdf|docx|xlsx|pptx)$/i;
const HEAD_BYTES = 4096;
const MAX_NAME_CHARS = 200;
/** Of all text files of a message. Quotes and line ends take two bytes where it is saved, and what was typed needs room too. */
const MAX_BYTES = Math.floor(page.max_body_bytes / 2);
/** More than models look at, and far below the limits of the API. */
const KEPT = { maxSide: 2048, maxBytes: 2_000_000 };
/** What is stored nowhere goes with each request of its chat, as text, and all of it fits into one message of the socket. */
const UNKEPT = { maxSide: 1024, maxBytes: 250_000 };
const MAX_UNKEPT_CHARS = Math.floor(page.max_bytes * 0.8);
/** The files that images were made of, by their places, for as long as the page lives. @type {Map<string, File>} */
export const origins = new Map();

/** The bytes of a text. @param {string} text */
export const sizeOf = (text) => new TextEncoder().encode(text).length;

/** Whether the server keeps the files of a chat; those that are compared are stored once they are kept. @param {Chat} open */
const isKept = (open) => !(app.behind.value ?? open).isTemporary;

/** @param {File} file */
const isPicture = ({ type, name }) => (type.startsWith("image/") && type !== "image/svg+xml") || /\.(heic|heif|avif)$/i.test(name);

/** @param {File} file */
const isSound = ({ type, name }) => type.startsWith("audio/") || /\.(wav|mp3|ogg|opus|flac|m4a|aac)$/i.test(name);

/**
 * Read files, and say which cannot be taken, and why.
 * @param {Chat} open whose message they are for
 * @param {File[]} files
 * @returns {Promise<{read: DraftFile[], problem: string}>}
 */
export async function readFiles(open, files) {
  /** @type {DraftFile[]} */
  const read = [];
  const problems = [];
  for (const file of files) {
    const attached = [...(open.draft.peek().files ?? []), ...read];
    try {
      if (attached.length >= MAX_FILES) throw new Refusal(t("{name} was left out: a message takes {max} files. Send the others with the next one.", { name: file.name, max: MAX_FILES }));
      const from = isPicture(file) ? pictureFrom : isSound(file) ? soundFrom : documentFrom;
      read.push(await from(open, file, attached));
    } catch (error) {
      if (!(error instanceof Refusal) && !(error instanceof ApiProblem)) throw error;
      problems.push(error instanceof Refusal ? error.message : t("{name} could not be attached: {problem}", { name: file.name, problem: error.message }));
    }
  }
  return { read, problem: problems.join(" ") };
}

/** @param {Chat} open @param {File} file @param {DraftFile[]} attached @returns {Promise<DraftFile>} */
async function soundFrom(open, file, attached) {
  const { name, size } = file;
  checkSize(file);
  const format = (/\.(\w{1,8})$/.exec(name)?.[1] ?? "wav").toLowerCase();
  const media = { .../** @type {const} */ ({ kind: "input_audio" }), format, url: await urlOf(open, name, file, attached), num_bytes: size };
  return { name, text: "", media };
}

/** @param {File} file */
function checkSize({ name, size }) {
  if (size > page.media.max_file_bytes) throw new Refusal(t("{name} has {n}; a file of a message may have {max}.", { name, n: fileSize(size), max: fileSize(page.media.max_file_bytes) }));
}

/** Why a file cannot be taken. */
export class Refusal extends Error {}

/** A short text as it is, and everything else as a document that the server reads. @param {Chat} open @param {File} file @param {DraftFile[]} attached @returns {Promise<DraftFile>} */
async function documentFrom(open, file, attached) {
  const { name, size } = file;
  const room = MAX_BYTES - attached.reduce((sum, { text }) => sum + sizeOf(text), 0);
  const text = size <= MAX_TEXT_BYTES && size <= room ? await textIn(file) : null;
  if (text !== null) return { name, text };
  checkSize(file);
  if (!DOCUMENTS.test(name) && !(await isText(file))) throw new Refusal(t("{name} cannot be read: attach text, PDF, DOCX, XLSX, PPTX, HTML or an image.", { name }));
  const media = { .../** @type {const} */ ({ kind: "file" }), url: await urlOf(open, name, file, attached), num_bytes: size };
  return { name: name.slice(-MAX_NAME_CHARS), text: "", media };
}

/** Whether a long file begins as text. @param {File} file */
async function isText(file) {
  const bytes = await file.slice(0, HEAD_BYTES).arrayBuffer();
  try {
    return !new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true }).includes("\0"); // the last letter may be cut
  } catch {
    return false;
  }
}

/** The text of a file, null if it is none. @param {Blob} file */
async function textIn(file) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

/** @param {Chat} open @param {File} file @param {DraftFile[]} attached @param {number} [side] the longest that it may have @returns {Promise<DraftFile>} */
export async function pictureFrom(open, file, attached, side = Infinity) {
  const { prepare } = await import("./pictures.js");
  const { maxSide, maxBytes } = limitsOf(open);
  const picture = await prepare(file, { maxSide: Math.min(side, maxSide), maxBytes });
  if (!picture) throw new Refusal(t("{name} is no image that this browser can read; save it as PNG or JPEG.", { name: file.name }));
  const { blob, ...about } = picture;
  const media = { .../** @type {const} */ ({ kind: "image_url" }), url: await urlOf(open, file.name, blob, attached), num_bytes: blob.size, ...about };
  origins.set(media.url, file);
  return { name: file.name || t("Image"), text: "", media };
}

/** @param {Chat} open */
export const limitsOf = (open) => (isKept(open) ? KEPT : UNKEPT);

/** Have a file kept, and return what a message calls it; in a chat that is not stored its contents. @param {Chat} open @param {string} name @param {Blob} blob @param {DraftFile[]} attached */
async function urlOf(open, name, blob, attached) {
  if (isKept(open)) return keptUrl((await sendFile("files", blob)).id);
  const url = await dataUrl(blob);
  const taken = mediaIn(open.path.peek().map(({ facts }) => facts), attached).reduce((/** @type {number} */ sum, /** @type {Media} */ media) => sum + media.url.length, 0);
  if (taken + url.length > MAX_UNKEPT_CHARS) {
    throw new Refusal(t("{name} was left out: what a temporary chat has of files may have {max} together, as nothing of it is stored.", { name, max: fileSize(Math.floor((MAX_UNKEPT_CHARS * 3) / 4)) }));
  }
  return url;
}

/** @param {Blob} blob @returns {Promise<string>} */
const dataUrl = (blob) =>
  new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
  });
