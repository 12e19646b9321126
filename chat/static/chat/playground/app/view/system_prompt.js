// @ts-check
import { html } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { useTokenCount } from "../core/loaded.js";
import { togglePanel } from "./layers.js";

/** @import { Chat } from "../core/chat.js" */

/** The system prompt as the first message of a chat; of the model's own, if the chat has none. @param {{open: Chat}} props */
export function SystemPrompt({ open }) {
  const { system, model } = open.settings.value;
  const own = app.modelOf(model)?.system_prompt;
  const text = system || own || "";
  const tokens = useTokenCount(model, text);
  if (!text) return null;
  return html`<details class="system-prompt">
    <summary>${system ? t("System prompt") : t("System prompt of the model")}
      ${tokens !== null && html`<span class="system-tokens">${plural(tokens, "1 token", "{n} tokens")}</span>`}</summary>
    <div class="system-text">${text}</div>
    <button type="button" class="button button-small" onClick=${() => togglePanel(true, "parameters")}>${t("Change")}</button>
  </details>`;
}
