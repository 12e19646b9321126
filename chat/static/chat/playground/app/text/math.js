// @ts-check
// Formulas, typeset once they are whole. What cannot be typeset stays as its source.
/** @type {Promise<typeof import("../../../vendor/katex.js")> | undefined} */
let library;
/** Typeset formulas by their source, as a growing answer is drawn again and again. @type {Map<string, Element>} */
const made = new Map();
const MAX_MADE = 500;
const FRAME = /^(?:\\\(([\s\S]*)\\\)|\\\[([\s\S]*)\\\]|\$\$([\s\S]*)\$\$|\$([\s\S]*)\$)$/;

/** Typeset those formulas below a node that are known already, so that none flickers. @param {ParentNode} node */
export function typesetKnown(node) {
  for (const place of node.querySelectorAll(".formula:not(.is-typeset)")) {
    const known = made.get(place.textContent ?? "");
    if (known) replace(place, known);
  }
}

/** @param {Element} node */
export async function typeset(node) {
  if (!node.querySelector(".formula:not(.is-typeset)")) return;
  library ??= loadLibrary();
  const { default: katex } = await library;
  for (const place of node.querySelectorAll(".formula:not(.is-typeset)")) {
    const source = place.textContent ?? "";
    const known = made.get(source) ?? typesetSource(katex, source, place.tagName === "PRE");
    if (!known) continue;
    if (made.size > MAX_MADE) made.clear();
    made.set(source, known);
    replace(place, known);
  }
}

async function loadLibrary() {
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet";
  sheet.href = document.querySelector("meta[name=katex-css]")?.getAttribute("content") ?? "";
  document.head.append(sheet);
  return import("../../../vendor/katex.js");
}

/** @param {any} katex @param {string} source @param {boolean} isBlock @returns {Element | null} */
function typesetSource(katex, source, isBlock) {
  const found = FRAME.exec(source);
  const tex = found ? (found[1] ?? found[2] ?? found[3] ?? found[4]) : source;
  const node = document.createElement("span");
  try {
    katex.render(tex, node, { displayMode: isBlock || source.startsWith("\\[") || source.startsWith("$$"), throwOnError: true, trust: false, strict: "ignore", maxExpand: 200 });
    return node;
  } catch {
    return null; // unknown commands, or half of it
  }
}

/** @param {Element} place @param {Element} known */
function replace(place, known) {
  place.replaceChildren(...known.cloneNode(true).childNodes);
  place.classList.add("is-typeset");
}
