// @ts-check
// Blocks of code: their language, buttons, and colours once they are whole.
import { copyText } from "../core/clipboard.js";
import { t } from "../core/i18n.js";

const LANGUAGE = /(?:^|\s)language-(\S+)/;
const MAX_COLOURED_CHARS = 60_000;

/** Put a head over a block of code: its language, and what can be done with it. @param {HTMLPreElement} pre */
export function frameCode(pre) {
  const code = pre.querySelector("code");
  const language = LANGUAGE.exec(code?.className ?? "")?.[1] ?? "";
  const frame = document.createElement("div");
  frame.className = "code-frame";
  const head = document.createElement("div");
  head.className = "code-head";
  const name = document.createElement("span");
  name.textContent = language || t("code");
  head.append(name, act("wrap", t("Wrap lines")), act("copy", t("Copy")));
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", language ? t("Code in {language}", { language }) : t("Code"));
  pre.replaceWith(frame);
  frame.append(head, pre);
  if (code) code.dataset.language = language;
}

/** @param {string} name @param {string} label */
function act(name, label) {
  const node = document.createElement("button");
  node.type = "button";
  node.className = "button button-quiet button-small";
  node.dataset.codeAct = name;
  node.textContent = label;
  return node;
}

/** Do what a button above a block of code says. @param {MouseEvent} event */
export async function actOnCode(event) {
  const target = event.target instanceof HTMLElement ? event.target : null;
  const pre = target?.closest(".code-frame")?.querySelector("pre");
  const name = target?.dataset.codeAct;
  if (!target || !pre || !name) return;
  if (name === "wrap") {
    target.setAttribute("aria-pressed", String(pre.classList.toggle("is-wrapped")));
    return;
  }
  target.textContent = (await copyText(pre.querySelector("code")?.textContent ?? "")) ? t("Copied") : t("Not allowed by the browser");
  setTimeout(() => (target.textContent = t("Copy")), 1500);
}

/** @type {Promise<typeof import("../../../vendor/highlight.js")> | undefined} */
let library;

/** Colour the whole blocks of code below a node, in languages that are known. @param {Element} node */
export async function colourCode(node) {
  const blocks = [...node.querySelectorAll("pre > code[data-language]:not([data-coloured])")].filter(
    (code) => code instanceof HTMLElement && code.dataset.language && (code.textContent ?? "").length < MAX_COLOURED_CHARS,
  );
  if (blocks.length === 0) return;
  library ??= import("../../../vendor/highlight.js");
  const { default: highlight } = await library;
  for (const code of /** @type {HTMLElement[]} */ (blocks)) {
    const language = code.dataset.language ?? "";
    if (!highlight.getLanguage(language)) continue;
    code.dataset.coloured = "";
    // The library escapes the text; only its own spans are made of what it returns.
    const spans = new DOMParser().parseFromString(highlight.highlight(code.textContent ?? "", { language, ignoreIllegals: true }).value, "text/html");
    code.replaceChildren(...spans.body.childNodes);
  }
}
