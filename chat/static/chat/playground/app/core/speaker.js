// @ts-check
// Speaks a running answer to screen readers: whole sentences, at most one utterance every two seconds.
import { signal } from "../../../vendor/preact.js";

const PAUSE_MS = 2000;
/** An end of a sentence may come in two pieces. */
const MAX_END = 8;
/** Up to the end of the last whole sentence or line. */
const SENTENCES = /^[^]*(?:[.!?…]["'”’»)\]]*\s|[。！？\n])/u;

export class Speaker {
  #isOn = true;
  /** What can be said as it is. */
  #whole = "";
  /** The sentence that is being written. */
  #begun = "";
  /** The answer that it is of. @type {object | undefined} */
  #of;
  #isPausing = false;
  #later;

  /** @param {(act: () => void, ms: number) => void} [later] the clock */
  constructor(later = (act, ms) => void setTimeout(act, ms)) {
    this.#later = later;
    /** What is to be said now: the text of a live region. */
    this.text = signal("");
  }

  get isOn() {
    return this.#isOn;
  }

  set isOn(isOn) {
    this.#isOn = isOn;
    if (!isOn) this.text.value = this.#whole = this.#begun = "";
  }

  /** More was written; what has begun of another answer is dropped. @param {string} text @param {object} [of] the answer */
  feed(text, of) {
    if (!this.#isOn) return;
    if (of !== this.#of) this.#begun = "";
    this.#of = of;
    const from = Math.max(0, this.#begun.length - MAX_END);
    this.#begun += text;
    const found = SENTENCES.exec(this.#begun.slice(from));
    if (!found) return;
    const end = from + found[0].length;
    this.#whole += this.#begun.slice(0, end);
    this.#begun = this.#begun.slice(end);
    this.#speak();
  }

  /** An answer has ended: say what is left of it. @param {object} [of] the answer */
  finish(of) {
    if (of === this.#of) this.say(this.#begun);
    this.#begun = "";
  }

  /** Say this between two sentences. @param {string} text */
  say(text) {
    if (!this.#isOn) return;
    this.#whole += `${text} `;
    this.#speak();
  }

  /** Say what can be said, unless something was said just now: then after a pause. */
  #speak() {
    const text = this.#whole.trim();
    if (this.#isPausing || !text) return;
    this.#whole = "";
    this.text.value = text;
    this.#isPausing = true;
    this.#later(() => {
      this.#isPausing = false;
      this.text.value = ""; // or the same words would not be said again
      this.#speak();
    }, PAUSE_MS);
  }
}
