// @ts-check
// Speaks a running answer to screen readers: whole sentences, at most one utterance every two seconds.
import { signal } from "../../../vendor/preact.js";

const PAUSE_MS = 2000;

export class Speaker {
  constructor() {
    /** What is to be said now: the text of a live region. */
    this.text = signal("");
    this.isOn = true;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.pending = "";
  }

  /** @param {string} text */
  feed(text) {
    if (!this.isOn) return;
    this.pending += text;
    this.timer ??= setTimeout(() => this.#speak(), PAUSE_MS);
  }

  /** @param {string} summary */
  finish(summary) {
    if (!this.isOn) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.text.value = `${this.pending} ${summary}`.trim();
    this.pending = "";
  }

  #speak() {
    this.timer = undefined;
    const end = Math.max(...[". ", "\n", "? ", "! "].map((mark) => this.pending.lastIndexOf(mark)));
    if (end < 0) return;
    this.text.value = this.pending.slice(0, end + 1);
    this.pending = this.pending.slice(end + 1);
  }
}
