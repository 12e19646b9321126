// @ts-check
// Markdown of model text, by blocks. Model text is never trusted: raw HTML is shown as text, what is made of it passes DOMPurify's allow-list,
// links open apart and images are not loaded.
import { Lexer, Marked } from "../../../vendor/marked.js";
import DOMPurify from "../../../vendor/dompurify.js";
import { t } from "../core/i18n.js";
import { frameCode } from "./code.js";
import { escapeHtml } from "./escape_html.js";
import { footnotes } from "./footnotes.js";
import { formulas } from "./formulas.js";

/** @import { Token, TokensList } from "../../../vendor/marked.js" */

const LINE_BREAK = /^<br\s*\/?>$/i;

const parser = new Marked(formulas, footnotes, {
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => (LINE_BREAK.test(text.trim()) ? "<br>" : escapeHtml(text)),
    image: ({ href, text }) => `${escapeHtml(text || t("image"))} (${escapeHtml(href)})`,
  },
});

const RULES = {
  ALLOWED_TAGS: [
    ...["a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p", "pre", "span", "strong", "sup"],
    ...["table", "tbody", "td", "th", "thead", "tr", "ul"],
  ],
  ALLOWED_ATTR: ["href", "class", "start", "align", "type", "checked", "disabled"],
  ADD_URI_SAFE_ATTR: ["start", "align", "type"], // their values are no addresses
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};

/** Line ends as the parser has them, whose blocks are counted in characters. @param {string} text */
export const withPlainLineEnds = (text) => text.replace(/\r\n?/g, "\n");

/** @param {string} text @returns {TokensList} */
export const blocksOf = (text) => parser.lexer(text);

/**
 * Parse a text in steps. What is returned at first has no texts within its blocks; each step of `rest` fills some of them in.
 * @param {string} text
 * @returns {{blocks: TokensList, rest: Generator<void>}}
 */
export function parsed(text) {
  const lexer = new Lexer(parser.defaults);
  lexer.blockTokens(text, lexer.tokens);
  return { blocks: lexer.tokens, rest: withTexts(lexer) };
}

/** @param {Lexer} lexer @returns {Generator<void>} */
function* withTexts(lexer) {
  // NOTE: the list grows while it is gone through.
  for (const { src, tokens } of lexer.inlineQueue) {
    lexer.inlineTokens(src, tokens);
    yield;
  }
}

/** Return the elements of a block. @param {Token} block @returns {DocumentFragment} */
export function elementsOf(block) {
  const fragment = /** @type {DocumentFragment} */ (/** @type {unknown} */ (DOMPurify.sanitize(parser.parser([block]), RULES)));
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.disabled = true;
    box.setAttribute("aria-label", box.checked ? t("Done") : t("To do"));
    box.closest("li")?.classList.add("task");
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = document.createElement("div");
    frame.className = "table-frame";
    table.replaceWith(frame);
    frame.append(table);
    letScroll(frame, t("Table"));
  }
  for (const pre of fragment.querySelectorAll("pre")) {
    if (pre.classList.contains("formula")) letScroll(pre, t("Formula"));
    else frameCode(pre);
  }
  return fragment;
}

/** What may be wider than the page can be scrolled by keyboard too. @param {HTMLElement} node @param {string} label */
function letScroll(node, label) {
  node.tabIndex = 0;
  node.setAttribute("role", "region");
  node.setAttribute("aria-label", label);
}
