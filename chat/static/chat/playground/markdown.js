// Markdown of model text. Model text is never trusted: raw HTML is shown as text, the result passes DOMPurify's allow-list,
// links open apart and images are not loaded.
const escapeHtml = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const parser = new globalThis.marked.Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escapeHtml(text),
    image: ({ href, text }) => `${escapeHtml(text || "image")} (${escapeHtml(href)})`,
  },
});

const RULES = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["href", "class", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
};

function render(source) {
  const fragment = globalThis.DOMPurify.sanitize(parser.parse(source), { ...RULES, RETURN_DOM_FRAGMENT: true });
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  return fragment;
}

function addCopyButtons(element) {
  for (const pre of element.querySelectorAll("pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button button-small copy-code";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(pre.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    pre.append(button);
  }
}

/** Renders growing text: finished blocks stay as they are, only the last block is parsed again. */
export class MarkdownStream {
  constructor(element) {
    this.element = element;
    this.text = "";
    this.settled = 0;
    this.tail = null;
  }

  append(text) {
    this.text += text;
  }

  paint() {
    const blocks = parser.lexer(this.text.slice(this.settled));
    for (const [index, block] of blocks.entries()) {
      if (!this.tail) {
        this.tail = document.createElement("div");
        this.tail.className = "block";
        this.element.append(this.tail);
      }
      this.tail.replaceChildren(render(block.raw));
      if (index < blocks.length - 1) {
        this.settled += block.raw.length;
        this.tail = null;
      }
    }
  }

  finish() {
    this.element.replaceChildren(render(this.text));
    addCopyButtons(this.element);
  }
}
