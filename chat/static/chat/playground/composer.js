// The box where messages are written. What is in it stays there through a reload.
const DRAFT = "draft";

export class Composer {
  /** `onSend(text)`: false where it was not taken, and stays. */
  constructor(store, onSend) {
    this.store = store;
    this.form = document.getElementById("composer");
    this.text = document.getElementById("composer-text");
    this.text.value = store.read(DRAFT) ?? "";
    this.text.addEventListener("input", () => this.changed());
    this.text.addEventListener("keydown", (event) => {
      // On a touch screen Enter is the only way to a new line.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.text.value.trim();
      if (text && onSend(text)) this.set("");
    });
    this.fit();
  }

  set(text) {
    this.text.value = text;
    this.changed();
  }

  changed() {
    this.store.write(DRAFT, this.text.value);
    this.fit();
  }

  focus() {
    this.text.focus();
  }

  fit() {
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight}px`;
  }

  showBusy(isBusy) {
    document.getElementById("stop").hidden = !isBusy;
    document.getElementById("send").hidden = isBusy;
  }
}
