// What stands beside the text of an answer: the model's thoughts, and the functions that it calls. Nothing here is run.
import { element } from "./elements.js";

/** The reasoning: open while it grows, closed once the answer begins or ends; the reader may open it again. */
export class ThoughtsView {
  constructor(message) {
    this.message = message;
    this.node = element("details", "thoughts");
    this.summary = element("summary", "", "Thinking");
    this.text = element("div", "thoughts-text");
    this.node.append(this.summary, this.text);
    this.node.hidden = !message.reasoning;
  }

  append(text) {
    if (!this.message.reasoning) {
      this.node.hidden = false;
      this.node.open = true;
    }
    this.message.reasoning = (this.message.reasoning ?? "") + text;
  }

  paint() {
    if (this.node.hidden) return;
    this.text.textContent = this.message.reasoning;
    if (this.message.content || this.message.calls) this.close();
  }

  finish() {
    if (!this.message.reasoning) return;
    this.text.textContent = this.message.reasoning;
    this.close();
  }

  /** Once: a reader who opens it again is not overruled. */
  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.node.open = false;
    this.summary.textContent = "Reasoning";
  }
}

/** A card for each call, with the arguments as they arrive, set out once they are whole. */
export class CallsView {
  constructor(message) {
    this.message = message;
    this.node = element("div", "calls");
    this.node.hidden = !message.calls;
  }

  append(pieces) {
    this.message.calls ??= [];
    for (const { index, id, name, arguments: text } of pieces) {
      const call = (this.message.calls[index] ??= { id, name, arguments: "" });
      call.arguments += text;
    }
  }

  paint() {
    this.show((text) => text);
  }

  finish() {
    this.show(setOut);
  }

  show(write) {
    const calls = this.message.calls ?? [];
    this.node.hidden = calls.length === 0;
    this.node.replaceChildren(
      ...calls.map((call) => {
        const card = element("section", "call");
        card.setAttribute("aria-label", `Call of ${call.name}`);
        card.append(element("div", "call-name", call.name), element("pre", "", write(call.arguments)));
        return card;
      }),
    );
  }
}

function setOut(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // cut by the token limit
  }
}
