// @ts-check
// A text on the page that may grow. Blocks that are finished stay as they are; of the last one only what may still change is parsed again: the
// last item of a list, the last rows of a table, what is added to code. So the work of a frame does not grow with the answer, and what a reader
// has selected stays selected, also at the end.
import { colourCode } from "./code.js";
import { blocksOf, elementsOf, parsed, withPlainLineEnds } from "./markdown.js";
import { typeset, typesetKnown } from "./math.js";

/** @import { Token, Tokens, TokensList } from "../../../vendor/marked.js" */

/** How long all texts may be drawn in a frame. */
const FRAME_MS = 8;
/** A text that is longer is begun in the next frame. */
const LONG_CHARS = 20_000;
/** How many items or rows of a long list or table are drawn at a time. */
const PART = 50;

/**
 * A list or table that goes on.
 * @typedef {{type: string, head: string, kept: number, ordered?: boolean, marker?: string, isLoose?: boolean}} OpenBlock
 *   `head`: the first lines of a table; `kept`: how many items or rows are not drawn again
 */

export class GrowingText {
  text = "";
  isWhole = false;
  /** How many characters will not be parsed again. */
  settled = 0;
  /** The place of the last block. @type {HTMLElement | null} */
  tail = null;
  /** The list or table that the tail goes on with. @type {OpenBlock | null} */
  open = null;
  /** What was drawn of each block while the text grew: where it begins, and whether its items stand apart. @type {{from: number, isLoose?: boolean}[]} */
  drawn = [];
  /** The steps that draw the whole text. @type {Generator<void> | null} */
  steps = null;

  /** @param {HTMLElement} node shows the source until the text is drawn */
  constructor(node) {
    this.node = node;
  }

  #clear() {
    this.node.replaceChildren();
    this.settled = 0;
    this.tail = this.open = null;
    this.drawn = [];
  }

  /** `isWhole`: nothing will be added. @param {string} source @param {boolean} isWhole */
  show(source, isWhole) {
    const text = withPlainLineEnds(source);
    if (text === this.text && isWhole === this.isWhole) return;
    const grows = !this.isWhole && text.startsWith(this.text);
    if (!grows && !isWhole) this.#clear();
    this.steps = isWhole ? this.#finish(text, grows && text === this.text) : null;
    if (!isWhole) {
      this.#begin();
      this.node.removeAttribute("aria-busy");
      this.#extend(text);
    } else if (text.length > LONG_CHARS) this.#later();
    else this.#go();
    this.text = text;
    this.isWhole = isWhole;
  }

  /** @param {string} text */
  #extend(text) {
    const tail = text.slice(this.settled);
    const open = this.open;
    const blocks = blocksOf(open?.type === "table" ? open.head + tail : tail);
    const first = blocks[0];
    if (open && first && goesOn(open, first)) {
      this.#extendOpen(open, first, blocks.length === 1);
      if (blocks.length === 1) return;
      const headChars = open.type === "table" ? open.head.length : 0;
      this.#settleBlock(first.raw.length - headChars);
      this.#addBlocks(blocks.slice(1));
      return;
    }
    if (open) this.#cutOpen(open);
    this.#addBlocks(blocks);
  }

  /** What was the last item or row of a list or table belongs to another block. @param {OpenBlock} open */
  #cutOpen(open) {
    const place = this.#partsOfTail(open);
    while (place && place.children.length > open.kept) place.lastElementChild?.remove();
    /** @type {{from: number}} */ (this.drawn.at(-1)).from = -1; // to be drawn again at the end
    this.#settleBlock(0);
  }

  /** @param {OpenBlock} open */
  #partsOfTail(open) {
    return this.tail?.querySelector(open.type === "table" ? "tbody" : ":scope > ul, :scope > ol");
  }

  /** @param {number} numChars */
  #settleBlock(numChars) {
    this.settled += numChars;
    if (this.tail) finishBlock(this.tail);
    this.tail = null;
    this.open = null;
  }

  /** @param {Token[]} blocks */
  #addBlocks(blocks) {
    for (const [at, block] of blocks.entries()) {
      const isLast = at === blocks.length - 1;
      if (isShown(block)) this.#drawTail(block, !isLast);
      if (!isLast) this.#settleBlock(block.raw.length);
    }
  }

  /** @param {Token} block @param {boolean} isDone */
  #drawTail(block, isDone) {
    if (!this.tail) {
      this.tail = placeOf();
      this.node.append(this.tail);
      this.drawn.push({ from: this.settled });
    }
    if (block.type === "code" && growCode(this.tail, /** @type {Tokens.Code} */ (block))) return;
    const fragment = elementsOf(block);
    typesetKnown(fragment);
    this.tail.replaceChildren(fragment);
    if (isDone) return;
    if (block.type === "list") this.#openList(/** @type {Tokens.List} */ (block));
    if (block.type === "table") this.#openTable(/** @type {Tokens.Table} */ (block));
  }

  /** Parse only the last item from now on. @param {Tokens.List} list */
  #openList(list) {
    if (list.items.length < 2) return;
    const before = list.items.slice(0, -1);
    this.settled += before.reduce((sum, item) => sum + item.raw.length, 0);
    /** @type {{isLoose?: boolean}} */ (this.drawn.at(-1)).isLoose = list.loose;
    this.open = { type: "list", head: "", ordered: list.ordered, marker: markerOf(list), isLoose: list.loose, kept: before.length };
  }

  /** Parse only the last row from now on. @param {Tokens.Table} table */
  #openTable(table) {
    const lines = table.raw.split("\n");
    const head = `${lines[0]}\n${lines[1]}\n`;
    const numRows = table.rows.length;
    if (numRows < 2) return;
    const done = lines.slice(2, 2 + numRows - 1).join("\n").length + 1;
    this.settled += head.length + done;
    this.open = { type: "table", head, kept: numRows - 1 };
  }

  /**
   * Draw what the tail adds to an open list or table: everything behind what is kept.
   * @param {OpenBlock} open @param {Token} block @param {boolean} isLast
   */
  #extendOpen(open, block, isLast) {
    const place = this.#partsOfTail(open);
    const items = block.type === "list" ? /** @type {Tokens.List} */ (block).items : [];
    if (open.isLoose) for (const item of items) item.loose = true;
    const added = elementsOf(block);
    typesetKnown(added);
    const rows = [...(added.querySelector(open.type === "table" ? "tbody" : "ul, ol")?.children ?? [])];
    if (!place) return;
    while (place.children.length > open.kept) place.lastElementChild?.remove();
    place.append(...rows);
    if (!isLast || rows.length < 2) return;
    const numDone = rows.length - 1;
    this.settled += open.type === "list" ? items.slice(0, numDone).reduce((sum, item) => sum + item.raw.length, 0) : rowChars(block, open.head, numDone);
    open.kept += numDone;
  }

  /** Remove the source, the only thing without a block of its own. */
  #begin() {
    if (this.node.firstChild instanceof Text) this.node.replaceChildren();
  }

  /** Take steps while the frame has time, and more in the next one: the page never stands still. */
  #go() {
    while (hasTime()) if (this.steps?.next().done) return this.node.removeAttribute("aria-busy");
    this.#later();
  }

  #later() {
    const { steps } = this;
    this.node.setAttribute("aria-busy", "true");
    requestAnimationFrame(() => steps === this.steps && this.#go());
  }

  /** Draw the whole text. What is the same stays. @param {string} text @param {boolean} isShownAlready while it grew @returns {Generator<void>} */
  *#finish(text, isShownAlready) {
    const { blocks, rest } = parsed(text);
    const stays = isShownAlready ? this.#unchanged(blocks) : new Set();
    const whole = blocks.filter(isShown);
    if (stays.size < whole.length) yield* rest;
    this.#begin();
    for (const [at, block] of whole.entries()) {
      if (!stays.has(block)) yield* this.#drawWhole(block, at);
      yield;
    }
    while (this.node.children.length > whole.length) this.node.lastElementChild?.remove();
    colourCode(this.node);
    typeset(this.node);
  }

  /** The blocks that are drawn as they are in the whole text: none if a reference may have changed others. @param {TokensList} blocks @returns {Set<Token>} */
  #unchanged(blocks) {
    const { drawn } = this;
    if (Object.keys(blocks.links).length || drawn.length !== this.node.children.length) return new Set();
    let from = 0;
    /** @type {{block: Token, from: number, isLoose?: boolean}[]} */
    const shown = [];
    for (const block of blocks) {
      if (isShown(block)) shown.push({ block, from, isLoose: /** @type {Tokens.List} */ (block).loose });
      from += block.raw.length;
    }
    const begins = (/** @type {number} */ at) => drawn[at]?.from === shown[at]?.from;
    const same = shown.filter(({ isLoose }, at) => begins(at) && begins(at + 1) && (drawn[at].isLoose ?? isLoose) === isLoose);
    return new Set(same.map(({ block }) => block));
  }

  /** Draw a block: anew, or in place of another one unless they are alike. @param {Token} block @param {number} at @returns {Generator<void>} */
  *#drawWhole(block, at) {
    const fresh = placeOf();
    const old = this.node.children[at];
    if (!old) this.node.append(fresh);
    const [first, ...more] = partsOf(block);
    fresh.append(elementsOf(first));
    const inner = fresh.querySelector(PARTS);
    for (const part of more) {
      yield;
      inner?.append(...(elementsOf(part).querySelector(PARTS)?.children ?? []));
    }
    if (old && !(plainText(old) === plainText(fresh) && isAlike(old, fresh))) old.replaceWith(fresh);
  }
}

/** When the time is over that texts have in this frame, 0 before the first of them. */
let frameEnd = 0;

function hasTime() {
  if (frameEnd === 0) {
    frameEnd = performance.now() + FRAME_MS;
    requestAnimationFrame(() => (frameEnd = 0));
  }
  return performance.now() < frameEnd;
}

/** What holds the parts of a long block. */
const PARTS = "tbody, ul, ol";

/** A block, a long list or table in parts of itself. @param {Token} block @returns {Token[]} */
function partsOf(block) {
  const name = block.type === "list" ? "items" : "rows";
  /** @type {unknown[]} */
  const all = /** @type {any} */ (block)[name] ?? [];
  if (all.length <= PART) return [block];
  const starts = Array.from({ length: Math.ceil(all.length / PART) }, (_, at) => at * PART);
  return starts.map((start) => /** @type {Token} */ ({ ...block, [name]: all.slice(start, start + PART) }));
}

/** @param {Token} block */
const isShown = (block) => block.type !== "space" && block.type !== "def";

const placeOf = () => {
  const place = document.createElement("div");
  place.className = "block";
  return place;
};

/** @param {HTMLElement} place */
function finishBlock(place) {
  colourCode(place);
  typeset(place);
}

/** @param {Element} node */
const plainText = (node) => (node.querySelector(".is-typeset, [data-coloured]") ? "" : node.textContent);

/** Whether two blocks have the same structure; colours and typeset formulas come later. @param {Element} old @param {Element} fresh */
function isAlike(old, fresh) {
  if (!old.querySelector(".is-typeset, [data-coloured]")) return old.isEqualNode(fresh);
  const [left, right] = [old, fresh].map((node) => node.querySelectorAll("p, li, td, th, pre, blockquote, h1, h2, h3, h4, h5, h6").length);
  const [code, freshCode] = [old, fresh].map((node) => [...node.querySelectorAll("pre:not(.formula)")].map((pre) => pre.textContent).join("\0"));
  const [sources, freshSources] = [old, fresh].map((node) => [...node.querySelectorAll(".formula")].map(sourceOf).join("\0"));
  return left === right && code === freshCode && sources === freshSources;
}

/** @param {Element} formula */
const sourceOf = (formula) => (formula.querySelector("annotation")?.textContent ?? formula.textContent ?? "").replace(/^\\[([]|\\[)\]]$|^\$+|\$+$/g, "").trim();

/** @param {Tokens.List} list */
const markerOf = (list) => (list.ordered ? (/^ *\d+([.)])/.exec(list.raw)?.[1] ?? "") : list.raw.trimStart()[0]);

/** @param {OpenBlock} open @param {Token} block */
function goesOn(open, block) {
  if (open.type !== block.type) return false;
  if (block.type === "table") return true;
  const list = /** @type {Tokens.List} */ (block);
  return list.ordered === open.ordered && markerOf(list) === open.marker;
}

/** How many characters the first rows behind the head of a table take. @param {Token} block @param {string} head @param {number} numRows */
const rowChars = (block, head, numRows) => block.raw.slice(head.length).split("\n").slice(0, numRows).join("\n").length + 1;

/** Add to the block of code that is there; false where it is another one. @param {HTMLElement} place @param {Tokens.Code} block */
function growCode(place, block) {
  const code = place.querySelector(".code-frame code");
  const text = code?.firstChild;
  if (!(text instanceof Text) || code?.childNodes.length !== 1 || /** @type {HTMLElement} */ (code).dataset.language !== (block.lang ?? "").split(/\s/)[0]) return false;
  const whole = `${block.text}\n`;
  const shown = text.data.replace(/\n$/, "");
  if (!whole.startsWith(shown)) return false;
  if (whole.length > text.data.length) text.replaceData(shown.length, text.data.length - shown.length, whole.slice(shown.length));
  return true;
}
