// @ts-check
// The page of a shared chat shows its texts without scripts; this draws the Markdown of the answers.
import { html, render } from "../vendor/preact.js";
import { Prose } from "./app/text/prose.js";

for (const body of document.querySelectorAll(".message-assistant .message-body")) {
  const text = body.textContent ?? "";
  body.textContent = "";
  body.classList.add("is-drawn", "prose");
  render(html`<${Prose} text=${text} isWhole=${true} />`, body);
}
