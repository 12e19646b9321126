// @ts-check
// Footnotes in Markdown, as extensions for marked: a mark in the text, and the note where the model wrote it.
import { escapeHtml } from "./escape_html.js";
import { startInLine, startOfBlock } from "./starts.js";

/** @import { MarkedExtension } from "../../../vendor/marked.js" */

const MARK = /^\[\^([^\]\s]{1,32})\](?!:)/;
const NOTE = /^\[\^([^\]\s]{1,32})\]:[ \t]*([^\n]+(?:\n(?: {2,}|\t)[^\n]+)*)(?:\n|$)/;

/** @type {MarkedExtension} */
export const footnotes = {
  extensions: [
    {
      name: "footnoteMark",
      level: "inline",
      start: startInLine(/\[\^/),
      tokenizer(text) {
        const found = MARK.exec(text);
        return found ? { type: "footnoteMark", raw: found[0], label: found[1] } : undefined;
      },
      renderer: ({ label }) => `<sup class="footnote-mark">${escapeHtml(label)}</sup>`,
    },
    {
      name: "footnote",
      level: "block",
      start: startOfBlock(/(?:^|\n)\[\^/),
      tokenizer(text) {
        const found = NOTE.exec(text);
        if (!found) return undefined;
        const tokens = this.lexer.inlineTokens(found[2].replace(/\n\s+/g, " "));
        return { type: "footnote", raw: found[0], label: found[1], tokens };
      },
      renderer({ label, tokens }) {
        return `<div class="footnote"><sup>${escapeHtml(label)}</sup> ${this.parser.parseInline(tokens ?? [])}</div>`;
      },
    },
  ],
};
