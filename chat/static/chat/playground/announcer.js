// Speaks a running answer to screen readers: whole sentences, at most one utterance every two seconds.
const PAUSE_MS = 2000;

export class Announcer {
  constructor(element) {
    this.element = element;
    this.pending = "";
    this.timer = null;
  }

  feed(text) {
    this.pending += text;
    this.timer ??= setTimeout(() => this.speak(), PAUSE_MS);
  }

  speak() {
    this.timer = null;
    const end = Math.max(this.pending.lastIndexOf(". "), this.pending.lastIndexOf("\n"), this.pending.lastIndexOf("? "), this.pending.lastIndexOf("! "));
    if (end < 0) return;
    this.element.textContent = this.pending.slice(0, end + 1);
    this.pending = this.pending.slice(end + 1);
  }

  finish(summary) {
    clearTimeout(this.timer);
    this.timer = null;
    this.element.textContent = `${this.pending} ${summary}`.trim();
    this.pending = "";
  }
}
