// @ts-check
// The text files of a question. Each is a content part that has the file's name as `attachment`; no request has that mark.
import { textOf } from "./answers.js";

/** @import { Content, DraftFile, Part, TurnFacts } from "./types.js" */

/** A message with its text files, each a part of its own. @param {string} text @param {DraftFile[]} [files] @returns {Content} */
export function contentOf(text, files = []) {
  if (files.length === 0) return text;
  /** @type {Part[]} */
  const parts = files.map((file) => ({ type: "text", text: `${file.name}:\n\n${file.text}`, attachment: file.name }));
  return text ? [...parts, { type: "text", text }] : parts;
}

/** A content as a request has it. @param {Content | undefined} content */
export const sentContent = (content) => (Array.isArray(content) ? content.map(({ attachment: _, ...part }) => part) : (content ?? ""));

/** What was typed as a question, and its files; of another turn all of its text. @param {TurnFacts} facts @returns {{text: string, files: DraftFile[]}} */
export function typedAndFiles({ role, content }) {
  if (role !== "user" || !Array.isArray(content)) return { text: textOf(content), files: [] };
  return { text: textOf(content.filter((part) => part.attachment === undefined)), files: content.flatMap(fileFrom) };
}

/** @param {Part} part @returns {DraftFile[]} */
function fileFrom({ attachment: name, text = "" }) {
  if (name === undefined) return [];
  const head = `${name}:\n\n`;
  return [{ name: String(name), text: text.startsWith(head) ? text.slice(head.length) : text }];
}
