// @ts-check
import { number, t } from "../core/i18n.js";

/** @import { DraftFile } from "../core/types.js" */

const MAX_FILE_BYTES = 200_000;

/**
 * Read files as text, and say which cannot be taken, and why.
 * @param {File[]} files
 * @returns {Promise<{read: DraftFile[], problem: string}>}
 */
export async function readTextFiles(files) {
  const read = [];
  const problems = [];
  for (const file of files) {
    if (file.size > MAX_FILE_BYTES) {
      problems.push(t("{name} has {n} bytes; a text file may have {max}.", { name: file.name, n: number(file.size), max: number(MAX_FILE_BYTES) }));
      continue;
    }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError("binary");
      read.push({ name: file.name, text });
    } catch {
      problems.push(t("{name} is no text in UTF-8; only text files can be attached.", { name: file.name }));
    }
  }
  return { read, problem: problems.join(" ") };
}
