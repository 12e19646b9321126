// The list of messages on the page and in memory. A message: {role, content, reasoning?, calls?, counters?, error?}.
import { CallsView, ThoughtsView } from "./asides.js";
import { element } from "./elements.js";
import { MarkdownStream } from "./markdown.js";

const AUTHORS = { user: "You", assistant: "Assistant" };

function button(label, act) {
  const node = element("button", "button button-quiet button-small", label);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/** One message on the page. */
export class MessageView {
  constructor(message, acts) {
    this.message = message;
    this.acts = acts;
    this.node = element("li", `message message-${message.role}`);
    const head = element("div", "message-head");
    head.append(element("span", "message-author", AUTHORS[message.role]), element("time", "", message.time));
    this.body = element("div", "message-body");
    this.foot = element("div", "message-foot");
    this.thoughts = new ThoughtsView(message);
    this.calls = new CallsView(message);
    this.node.append(head, this.thoughts.node, this.body, this.calls.node, this.foot);
    if (message.role === "user") {
      this.body.textContent = message.content;
      this.foot.append(button("Edit", () => acts.edit(message)), this.copyButton());
      return;
    }
    this.body.classList.add("prose");
    this.stream = new MarkdownStream(this.body);
    if (message.content || message.reasoning || message.calls || message.counters || message.error) {
      this.stream.append(message.content);
      this.finish();
    } else {
      this.pending = element("div", "pending");
      this.pending.append(element("span"), element("span"), element("span"));
      this.body.append(this.pending);
    }
  }

  copyButton() {
    const copy = button("Copy", async () => {
      await navigator.clipboard.writeText(this.message.content);
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    });
    return copy;
  }

  /** Take a delta: its text, and what the model thinks and calls. */
  append({ text, reasoning, tool_calls: calls }) {
    this.pending?.remove();
    this.pending = null;
    this.message.content += text;
    this.stream.append(text);
    if (reasoning) this.thoughts.append(reasoning);
    if (calls) this.calls.append(calls);
  }

  paint() {
    this.stream.paint();
    this.thoughts.paint();
    this.calls.paint();
  }

  finish() {
    this.pending?.remove();
    this.stream.finish();
    this.thoughts.finish();
    this.calls.finish();
    this.foot.replaceChildren();
    const { counters, error } = this.message;
    if (counters) for (const text of counters) this.foot.append(element("span", "", text));
    if (this.message.content) this.foot.append(this.copyButton());
    if (!error) {
      this.foot.append(button("Regenerate", () => this.acts.regenerate(this.message)));
      return;
    }
    const box = element("div", "message-error");
    box.setAttribute("role", "alert");
    box.append(element("div", "", error.message));
    if (error.code) box.append(element("code", "", [error.code, error.param, error.request_id].filter(Boolean).join(" · ")));
    box.append(element("div"), button("Try again", () => this.acts.regenerate(this.message)));
    this.node.insertBefore(box, this.foot);
  }
}
