// What stands beside the text of an answer: the model's thoughts, and the functions that it calls. Nothing here is run.
import { element } from "./elements.js";

/** The reasoning: open while it grows, closed once the answer begins or ends; the reader may open it again. */
export class ThoughtsView {
  constructor() {
    this.node = element("details", "thoughts");
    this.summary = element("summary", "", "Thinking");
    this.text = element("div", "thoughts-text");
    this.node.append(this.summary, this.text);
    this.wasGrowing = false;
  }

  show(text, isGrowing) {
    this.node.hidden = !text;
    if (this.text.textContent !== text) this.text.textContent = text;
    this.summary.textContent = isGrowing ? "Thinking" : "Reasoning";
    // Once each way: a reader who opens or closes it is not overruled.
    if (isGrowing !== this.wasGrowing) this.node.open = isGrowing;
    this.wasGrowing = isGrowing;
  }
}

/** A card for each call, with the arguments as they arrive, set out once they are whole. */
export class CallsView {
  constructor() {
    this.node = element("div", "calls");
    this.shown = "";
  }

  show(calls, isWhole) {
    const texts = calls.map((call) => [call.name, isWhole ? setOut(call.arguments) : call.arguments]);
    const shown = JSON.stringify(texts);
    if (shown === this.shown) return;
    this.shown = shown;
    this.node.replaceChildren(
      ...texts.map(([name, text]) => {
        const card = element("section", "call");
        card.setAttribute("aria-label", `Call of ${name}`);
        card.append(element("div", "call-name", name), element("pre", "", text));
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
