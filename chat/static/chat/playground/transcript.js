// The list of messages: one view for each message that is shown, in their order.
import { AnswerView, QuestionView } from "./messages.js";

export class Transcript {
  constructor(list, acts) {
    this.list = list;
    this.acts = acts;
    this.views = new Map();
  }

  /** Show these messages and no others. */
  show(path, state) {
    const ids = new Set(path.map(({ id }) => id));
    for (const [id, view] of this.views) {
      if (ids.has(id)) continue;
      view.node.remove();
      this.views.delete(id);
    }
    let after = null;
    for (const message of path) {
      const view = this.viewOf(message);
      const next = after ? after.nextSibling : this.list.firstChild;
      if (view.node !== next) this.list.insertBefore(view.node, next);
      view.show(message, state);
      after = view.node;
    }
  }

  /** Show what has changed of one message, if it is on the page. */
  update(message, state) {
    this.views.get(message.id)?.show(message, state);
  }

  /** Put the focus on the button of this name within a message: its view may be a new one. */
  focus(message, label) {
    const buttons = [...(this.views.get(message.id)?.node.querySelectorAll("button") ?? [])];
    const wanted = buttons.find((node) => (node.getAttribute("aria-label") ?? node.textContent) === label && !node.disabled);
    (wanted ?? buttons.find((node) => !node.disabled))?.focus();
  }

  viewOf(message) {
    let view = this.views.get(message.id);
    if (!view) {
      view = message.role === "user" ? new QuestionView(message, this.acts) : new AnswerView(message, this.acts);
      this.views.set(message.id, view);
    }
    return view;
  }
}
