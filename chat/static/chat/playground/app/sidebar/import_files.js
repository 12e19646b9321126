// @ts-check
// What is in a file of chats, in pieces that the server takes at once. It takes all chats of a piece or none.
import { sendFile } from "../core/api.js";
import { keptUrl } from "../core/attached.js";
import { t } from "../core/i18n.js";
import { parse } from "../core/json.js";

/**
 * @typedef {{text: string, name: string, at: number}} FileChat `at`: its place in the file, from 1
 * @typedef {{format: "lightcone" | "openai" | "chatgpt", chats: FileChat[]}} Piece
 */

const SEVERAL = "lightcone.conversations";
const MAX_CHATS = 100;
const MAX_CHARS = 400_000; // a body may have 1 MiB, and quotes take two characters in it

/** Throws SyntaxError with a text for the reader. @param {string} text @returns {Piece[]} */
export function piecesOf(text) {
  const { value: whole } = parse(text);
  if (Array.isArray(whole)) return piecesFrom("chatgpt", inOrder(whole));
  if (whole?.object === "lightcone.conversation") return piecesFrom("lightcone", inOrder([whole]));
  if (whole?.object === SEVERAL && Array.isArray(whole.conversations)) return piecesFrom("lightcone", inOrder(whole.conversations));
  if (whole?.mapping) return piecesFrom("chatgpt", inOrder([whole]));
  const lines = text.split("\n").map((line, at) => ({ text: line, name: t("line {n}", { n: at + 1 }), at: at + 1 }));
  const chats = lines.filter((line) => line.text.trim());
  if (!chats.length || !chats.every((line) => Array.isArray(parse(line.text).value?.messages))) {
    throw new SyntaxError(t("This is none of the files that can be imported; see above."));
  }
  return piecesFrom("openai", chats);
}

/** What the server is sent. @param {Piece} piece */
export function bodyOf({ format, chats }) {
  if (format === "lightcone") return { format, text: JSON.stringify({ object: SEVERAL, conversations: chats.map(({ text }) => parse(text).value) }) };
  const first = chats[0].at;
  if (format === "chatgpt") return { format, first, text: `[${chats.map(({ text }) => text).join(",")}]` };
  // Blank lines stay, so that each has its number in the file.
  return { format, first, text: chats.map(({ text, at }, number) => (number ? "\n".repeat(at - chats[number - 1].at) : "") + text).join("") };
}

/** @param {Piece} piece @returns {Piece[]} */
export function halvesOf({ format, chats }) {
  const middle = Math.ceil(chats.length / 2);
  return [chats.slice(0, middle), chats.slice(middle)].map((half) => ({ format, chats: half }));
}

/** @param {Piece} piece */
export function nameOf({ chats }) {
  const [first, last] = [chats[0].name, chats[chats.length - 1].name];
  return chats.length === 1 ? first : t("{first} to {last}", { first, last });
}

/** @param {any[]} chats @returns {FileChat[]} */
const inOrder = (chats) => chats.map((chat, at) => ({ text: JSON.stringify(chat), name: titleOf(chat, at + 1), at: at + 1 }));

/** @param {any} chat @param {number} at */
const titleOf = (chat, at) => (typeof chat?.title === "string" && chat.title.trim()) || t("chat {n}", { n: at });

/** @param {Piece["format"]} format @param {FileChat[]} chats @returns {Piece[]} */
function piecesFrom(format, chats) {
  /** @type {Piece[]} */
  const pieces = [];
  let numChars = 0;
  for (const chat of chats) {
    const last = pieces.at(-1);
    numChars += chat.text.length;
    if (last && last.chats.length < MAX_CHATS && numChars < MAX_CHARS) last.chats.push(chat);
    else {
      pieces.push({ format, chats: [chat] });
      numChars = chat.text.length;
    }
  }
  return pieces;
}

/** The contents of a file in JSON: what they are, and their base64. */
const CONTENTS = /"(data:[a-z]+\/[\w.+-]+(?:;[\w=.+-]+)*;base64,[A-Za-z0-9+/]{500,}={0,2})"/g;

/** Have the images and documents in a file of chats kept, and return the text with their names: pieces are small. Throws ApiProblem. @param {string} text */
export async function filesSent(text) {
  /** @type {Map<string, string>} */
  const names = new Map();
  for (const [, url] of text.matchAll(CONTENTS)) {
    if (names.has(url)) continue;
    const bytes = Uint8Array.from(atob(url.slice(url.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
    names.set(url, keptUrl((await sendFile("files", new Blob([bytes]))).id));
  }
  return text.replace(CONTENTS, (found, url) => (names.has(url) ? `"${names.get(url)}"` : found));
}
