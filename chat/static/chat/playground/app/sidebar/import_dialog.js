// @ts-check
import { html, useState } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import * as app from "../core/app.js";
import { titleOf } from "../core/chat_list.js";
import { plural, t } from "../core/i18n.js";
import { Dialog } from "../view/controls.js";
import { closeDialog } from "../view/layers.js";
import { bodyOf, filesSent, halvesOf, nameOf, piecesOf } from "./import_files.js";
import { openAt } from "./reveal.js";

/** @import { ChatFacts } from "../core/types.js" */
/** @import { Piece } from "./import_files.js" */

/** @typedef {{chats: ChatFacts[], unknown: string[], problems: string[], isFull: boolean}} Result `isFull`: the server takes no more */

/** So many lines tell what was refused. */
const MAX_TOLD = 50;

/** Chats from files: exported here, from ChatGPT, or OpenAI's JSONL. */
export function ImportDialog() {
  const [result, setResult] = useState(/** @type {Result | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const take = async (/** @type {FileList} */ files) => {
    if (files.length === 0) return;
    setBusy(true);
    setResult(await bring([...files]));
    setBusy(false);
    app.chatList.refresh();
  };
  return html`<${Dialog} title=${t("Import chats")} onClose=${closeDialog}>
    <div class="form">
      <p>${t("Files that can be read: chats exported here as JSON, OpenAI’s JSONL with one conversation per line, and conversations.json of a ChatGPT export.")}</p>
      <label class="button button-primary import-pick"><input class="visually-hidden" id="import-files" type="file" multiple accept=".json,.jsonl,application/json" disabled=${isBusy}
        onChange=${(/** @type {any} */ event) => take(event.target.files)} />${isBusy ? t("Importing …") : t("Choose files")}</label>
      <div role="status">${result && html`<${Outcome} result=${result} />`}</div>
    </div>
  <//>`;
}

/** @param {File[]} files @returns {Promise<Result>} */
async function bring(files) {
  /** @type {Result} */
  const result = { chats: [], unknown: [], problems: [], isFull: false };
  for (const file of files) {
    try {
      for (const piece of piecesOf(await filesSent(await file.text()))) await bringPiece(result, file.name, piece);
    } catch (error) {
      if (!(error instanceof SyntaxError) && !(error instanceof ApiProblem)) throw error;
      result.problems.push(`${file.name}: ${error.message}`);
    }
  }
  return result;
}

/** Import a piece of a file; of one that is refused the chats that can be taken. @param {Result} result @param {string} fileName @param {Piece} piece */
async function bringPiece(result, fileName, piece) {
  if (result.isFull) return;
  try {
    const made = await api("POST", "import", bodyOf(piece));
    result.chats.push(...made.data);
    result.unknown.push(...made.unknown);
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    const isOfChat = error.status === 400 || error.status === 413 || error.code === "insufficient_quota";
    if (isOfChat && piece.chats.length > 1) for (const half of halvesOf(piece)) await bringPiece(result, fileName, half);
    else {
      result.isFull = error.code === "insufficient_quota";
      const more = result.isFull ? ` ${t("What stands behind it was not imported.")}` : "";
      result.problems.push(`${fileName}: ${namedBy(nameOf(piece), error.message)}${more}`);
    }
  }
}

/** @param {string} name @param {string} message which may begin with that name */
const namedBy = (name, message) => (message.startsWith(name) ? message : `${name}: ${message}`);

/** @param {{result: Result}} props */
function Outcome({ result: { chats, unknown, problems } }) {
  const open = (/** @type {string} */ id) => {
    closeDialog();
    openAt(id);
  };
  const numMore = problems.length - MAX_TOLD;
  return html`${problems.slice(0, MAX_TOLD).map((text) => html`<p class="problem" key=${text}>${text}</p>`)}${numMore > 0 && html`<p class="problem">${plural(numMore, "One more was refused.", "{n} more were refused.")}</p>`}
    ${chats.length > 0 && html`<p><b>${plural(chats.length, "One chat is imported.", "{n} chats are imported.")}</b></p>
      <ul class="import-chats">${chats.slice(0, 20).map(({ id, title }) => html`<li key=${id}><button type="button" class="button button-quiet button-small" onClick=${() => open(id)}>${titleOf({ title })}</button></li>`)}</ul>`}
    ${unknown.length > 0 && html`<p>${t("These parts of the files are not known here and were left out:")}</p><ul class="import-unknown">${unknown.map((name) => html`<li key=${name}><code>${name}</code></li>`)}</ul>`}`;
}
