// A line above the composer that says what was just done, with a button that takes it back.
import { button, element } from "./elements.js";

export class Notice {
  constructor(node) {
    this.node = node;
  }

  show(text, label, act) {
    this.node.replaceChildren(element("span", "", text), button(label, act), button("✕", () => this.hide(), "Close the notice"));
    this.node.hidden = false;
  }

  hide() {
    this.node.hidden = true;
    this.node.replaceChildren();
  }
}
