// @ts-check
import { number, t } from "../core/i18n.js";
import { page } from "../core/page.js";

/** @import { DraftFile } from "../core/types.js" */

const MAX_FILE_BYTES = 200_000;
const MAX_FILES = 20;
/** Of all files of a message. Quotes and line ends take two bytes where it is saved, and what was typed needs room too. */
const MAX_BYTES = Math.floor(page.max_body_bytes / 2);

/** The bytes of a text. @param {string} text */
export const sizeOf = (text) => new TextEncoder().encode(text).length;

/**
 * Read files as text, and say which cannot be taken, and why.
 * @param {File[]} files
 * @param {DraftFile[]} attached those that the message has
 * @returns {Promise<{read: DraftFile[], problem: string}>}
 */
export async function readTextFiles(files, attached) {
  const read = [];
  const problems = [];
  let room = MAX_BYTES - attached.reduce((sum, { text }) => sum + sizeOf(text), 0);
  for (const file of files) {
    const problem = refusal(file, room, attached.length + read.length);
    const text = problem ? null : await textIn(file);
    if (text === null) {
      problems.push(problem || t("{name} is no text in UTF-8; only text files can be attached.", { name: file.name }));
      continue;
    }
    room -= file.size;
    read.push({ name: file.name, text });
  }
  return { read, problem: problems.join(" ") };
}

/** Why a file cannot be taken, whatever is in it; "" if it can. @param {File} file @param {number} room bytes @param {number} numFiles that the message has */
function refusal({ name, size }, room, numFiles) {
  if (size > MAX_FILE_BYTES) return t("{name} has {n} bytes; a text file may have {max}.", { name, n: number(size), max: number(MAX_FILE_BYTES) });
  if (numFiles >= MAX_FILES) return t("{name} was left out: a message takes {max} files. Send the others with the next one.", { name, max: MAX_FILES });
  if (size > room) {
    return t("{name} was left out: the files of a message may have {max} bytes together. Send it with the next one.", { name, max: number(MAX_BYTES) });
  }
  return "";
}

/** The text of a file, null if it is none. @param {File} file */
async function textIn(file) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}
