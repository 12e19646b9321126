// @ts-check
// What is in a file of chats, in pieces that the server takes at once.
import { t } from "../core/i18n.js";

/** @typedef {{format: "lightcone" | "openai" | "chatgpt", text: string}} Piece */

const MAX_CHATS = 100;
const MAX_CHARS = 400_000; // a body may have 1 MiB, and quotes take two characters in it

/** Throws SyntaxError with a text for the reader. @param {string} text @returns {Piece[]} */
export function piecesOf(text) {
  const whole = parsed(text);
  if (Array.isArray(whole)) return joined("chatgpt", whole.map((chat) => JSON.stringify(chat))).map(({ format, text: lines }) => ({ format, text: `[${lines.replaceAll("\n", ",")}]` }));
  if (whole?.object === "lightcone.conversation") return [{ format: "lightcone", text }];
  if (whole?.object === "lightcone.conversations" && Array.isArray(whole.conversations)) {
    const chats = joined("lightcone", whole.conversations.map((/** @type {unknown} */ chat) => JSON.stringify(chat)));
    return chats.map(({ format, text: lines }) => ({ format, text: `{"object":"${whole.object}","conversations":[${lines.replaceAll("\n", ",")}]}` }));
  }
  if (whole?.mapping) return [{ format: "chatgpt", text: `[${text}]` }];
  const lines = text.split("\n").filter((line) => line.trim());
  if (!lines.length || !lines.every((line) => Array.isArray(parsed(line)?.messages))) {
    throw new SyntaxError(t("This is none of the files that can be imported; see above."));
  }
  return joined("openai", lines);
}

/** @param {string} text @returns {any} undefined if it is no JSON */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {Piece["format"]} format @param {string[]} chats each on one line @returns {Piece[]} */
function joined(format, chats) {
  /** @type {Piece[]} */
  const pieces = [];
  let num = 0;
  for (const chat of chats) {
    const last = pieces.at(-1);
    if (last && num < MAX_CHATS && last.text.length + chat.length < MAX_CHARS) last.text += `\n${chat}`;
    else {
      pieces.push({ format, text: chat });
      num = 0;
    }
    num += 1;
  }
  return pieces;
}
