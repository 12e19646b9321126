// @ts-check
// Formulas in Markdown, as extensions for marked: their source stays as the model wrote it, where Markdown would take its backslashes, stars and
// lines for its own. math.js typesets them.
import { escapeHtml } from "./escape_html.js";
import { startInLine, startOfBlock } from "./starts.js";

/** @import { MarkedExtension, TokenizerAndRendererExtension, Tokens } from "../../../vendor/marked.js" */

const BLOCK = /^ {0,3}(?:\\\[[\s\S]{1,9999}?\\\]|\$\$[\s\S]{1,9999}?\$\$|\\begin\{([a-zA-Z]+\*?)\}[\s\S]{1,9999}?\\end\{\1\})[ \t]*(?:\n|$)/;
const BLOCK_START = /(?:^|\n) {0,3}(?:\\\[|\$\$|\\begin\{)/;
const INLINE = /^(?:\\\([\s\S]{1,2000}?\\\)|\\\[[\s\S]{1,2000}?\\\]|\$\$[^$]{1,2000}?\$\$|\$(?![\s$])[^$\n]{0,500}?[^\s$\\]\$(?!\d))/;
const INLINE_START = /\\[([]|\$/;
const COMMAND = /^\\[()[\]{},;:!]/;

/**
 * @param {string} name
 * @param {"block" | "inline"} level
 * @param {[RegExp, RegExp]} patterns where one may begin, and what one is
 * @param {string} tag
 * @returns {TokenizerAndRendererExtension}
 */
function formula(name, level, [start, pattern], tag) {
  return {
    name,
    level,
    start: level === "block" ? startOfBlock(start) : startInLine(start),
    tokenizer(text) {
      const found = pattern.exec(text);
      return found ? { type: name, raw: found[0], text: found[0].trim() } : undefined;
    },
    renderer: ({ text }) => `<${tag} class="formula">${escapeHtml(text)}</${tag}>`,
  };
}

/** @type {MarkedExtension} */
export const formulas = {
  extensions: [formula("formulaBlock", "block", [BLOCK_START, BLOCK], "pre"), formula("formulaInline", "inline", [INLINE_START, INLINE], "span")],
  tokenizer: {
    /** Half a formula, as while it is written, and spaces such as `\,` outside of one: the backslash stays. */
    escape(text) {
      const found = COMMAND.exec(text);
      return found ? /** @type {Tokens.Escape} */ ({ type: "escape", raw: found[0], text: found[0] }) : false;
    },
  },
};
