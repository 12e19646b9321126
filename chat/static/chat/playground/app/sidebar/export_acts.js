// @ts-check
// Several chats as one file.
import { html } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { apiFile } from "../core/api.js";
import * as app from "../core/app.js";
import { number, t } from "../core/i18n.js";
import { MenuAct } from "../view/controls.js";
import { isPhone, toggleSidebar } from "../view/layers.js";

const MAX_CHATS = 1000; // of one file, as the server has it
const MAX_MB = 128;
const ENDINGS = { markdown: "md", json: "json", jsonl: "jsonl" };

/** @typedef {keyof typeof ENDINGS} Format */

/** The formats, what is in each, and what a file takes. @param {{fields: () => Record<string, unknown>}} props what is asked for, as the server's route takes it */
export function ExportMenu({ fields }) {
  const act = (/** @type {Format} */ format) => () => exportChats(format, fields());
  return html`<${MenuAct} icon="download" onClick=${act("markdown")}>${t("Markdown")} <small>${t("what is shown")}</small><//>
    <${MenuAct} icon="download" onClick=${act("json")}>${t("JSON")} <small>${t("all of it")}</small><//>
    <${MenuAct} icon="download" onClick=${act("jsonl")}>${t("OpenAI JSONL")} <small>${t("what is shown")}</small><//>
    <p class="menu-note">${t("A file takes up to {n} chats and {mb} MB.", { n: number(MAX_CHATS), mb: MAX_MB })}</p>`;
}

/** @param {Format} format @param {Record<string, unknown>} fields */
async function exportChats(format, fields) {
  if (isPhone.value) toggleSidebar(false); // it covers the line that tells
  const told = { text: t("The file is being made …") };
  app.notice.value = told;
  const isMade = await acts.attempt(async () => save(await apiFile("export", { format, ...fields }), `${t("chats")}.${ENDINGS[format]}`));
  if (isMade && app.notice.value === told) app.notice.value = null;
}

/** @param {Blob} file @param {string} name */
function save(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser may still read it
}
