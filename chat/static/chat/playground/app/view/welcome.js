// @ts-check
import { html } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { page } from "../core/page.js";

/** @import { Chat } from "../core/chat.js" */

/** What an empty chat shows. @param {{open: Chat}} props */
export function Welcome({ open }) {
  const examples = [
    t("Explain what a light cone is, in three sentences."),
    t("Write a haiku about the sea at night."),
    t("Show a Python function that reverses a list."),
  ];
  if (app.models.value.length === 0) {
    return html`<section class="welcome"><h2>${t("No model is served")}</h2>
      <p>${page.manages_models ? t("Pull or register one in the console, under Models.") : t("An administrator can pull or register one in the console.")}</p></section>`;
  }
  return html`<section class="welcome">
    <img src=${page.urls.mark} alt="" width="52" height="52" />
    <h2>${open.isTemporary ? t("A temporary chat") : t("What shall we work on?")}</h2>
    <p>${open.isTemporary ? t("It is never stored: it is gone when you leave the page.") : t("Answers come from a model on this server; nothing leaves it.")}</p>
    <div class="suggestions">
      ${examples.map((text) => html`<button class="suggestion" type="button" key=${text} onClick=${() => acts.say(open, text)}>${text}</button>`)}
    </div>
  </section>`;
}
