// Markdown of model text. Model text is never trusted: raw HTML is shown as text, the result passes DOMPurify's allow-list,
// links open apart and images are not loaded.
import { copyWith } from "./clipboard.js";
import { button, element } from "./elements.js";
import { formulas } from "./formulas.js";

const LINE_BREAK = /^<br\s*\/?>$/i;
const escapeHtml = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const parser = new globalThis.marked.Marked(formulas, {
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => (LINE_BREAK.test(text.trim()) ? "<br>" : escapeHtml(text)),
    image: ({ href, text }) => `${escapeHtml(text || "image")} (${escapeHtml(href)})`,
  },
});

const RULES = {
  ALLOWED_TAGS: [
    ...["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p", "pre", "span", "strong"],
    ...["table", "tbody", "td", "th", "thead", "tr", "ul"],
  ],
  ALLOWED_ATTR: ["href", "class", "start", "align", "type", "checked", "disabled"],
  ADD_URI_SAFE_ATTR: ["start", "align", "type"], // their values are no addresses
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
};

function render(source) {
  const fragment = globalThis.DOMPurify.sanitize(parser.parse(source), { ...RULES, RETURN_DOM_FRAGMENT: true });
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.disabled = true;
    box.setAttribute("aria-label", box.checked ? "Done" : "To do");
    box.closest("li")?.classList.add("task");
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = element("div", "table-frame");
    table.replaceWith(frame);
    frame.append(table);
    letScroll(frame, "Table");
  }
  for (const pre of fragment.querySelectorAll("pre")) letScroll(pre, pre.classList.contains("formula") ? "Formula" : "Code");
  return fragment;
}

/** What may be wider than the page can be scrolled by keyboard too. */
function letScroll(node, label) {
  node.tabIndex = 0;
  node.setAttribute("role", "region");
  node.setAttribute("aria-label", label);
}

function addCopyButtons(node) {
  for (const pre of node.querySelectorAll("pre:not(.formula)")) {
    const code = pre.querySelector("code");
    const frame = element("div", "code-frame");
    const copy = button("Copy", () => copyWith(copy, code.textContent), "Copy code");
    copy.classList.add("copy-code");
    pre.replaceWith(frame);
    frame.append(pre, copy);
  }
}

/** A text on the page that may grow: finished blocks stay as they are, only the last block is parsed again. */
export class MarkdownView {
  constructor(node) {
    this.node = node;
    this.clear();
  }

  clear() {
    this.node.replaceChildren();
    this.text = "";
    this.settled = 0;
    this.tail = null;
    this.isWhole = false;
  }

  /** `isWhole`: nothing will be added; the text is parsed at one go, so that its parts may refer to each other. */
  show(source, isWhole) {
    const text = source.replace(/\r\n?/g, "\n"); // as the parser does, whose blocks are counted in characters
    if (text === this.text && isWhole === this.isWhole) return;
    if (isWhole) {
      this.node.replaceChildren(render(text));
      addCopyButtons(this.node);
    } else {
      if (this.isWhole || !text.startsWith(this.text)) this.clear();
      this.extend(text);
    }
    this.text = text;
    this.isWhole = isWhole;
  }

  extend(text) {
    const blocks = parser.lexer(text.slice(this.settled));
    for (const [index, block] of blocks.entries()) {
      if (!this.tail) {
        this.tail = element("div", "block");
        this.node.append(this.tail);
      }
      this.tail.replaceChildren(render(block.raw));
      if (index < blocks.length - 1) {
        this.settled += block.raw.length;
        this.tail = null;
      }
    }
  }
}
