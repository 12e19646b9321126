// A question that is edited where it stands. Nothing changes until it is sent; Esc or Cancel leaves all as it was.
import { button, element } from "./elements.js";

export class EditForm {
  /** `onSend(text)`, `onCancel()`. */
  constructor(content, { onSend, onCancel }) {
    this.node = element("form", "edit-form");
    this.text = element("textarea", "input");
    this.text.setAttribute("aria-label", "Edit the message");
    this.text.rows = 1;
    this.text.value = content;
    const send = element("button", "button button-primary button-small", "Save & send");
    send.type = "submit";
    const acts = element("div", "edit-acts");
    acts.append(button("Cancel", onCancel), send);
    this.node.append(this.text, acts);
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.text.value.trim();
      if (text) onSend(text);
    });
    this.text.addEventListener("input", () => this.fit());
    this.text.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") {
        event.stopPropagation();
        onCancel();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.node.requestSubmit();
      }
    });
  }

  /** Once it is on the page. */
  begin() {
    this.fit();
    this.text.focus();
    this.text.setSelectionRange(this.text.value.length, this.text.value.length);
  }

  fit() {
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight + 2}px`;
  }
}
