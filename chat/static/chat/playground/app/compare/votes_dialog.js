// @ts-check
import { html, useState } from "../../../vendor/preact.js";
import { moment, number, t } from "../core/i18n.js";
import { CopyButton, Dialog } from "../view/controls.js";
import { closeDialog, openDialog } from "../view/layers.js";
import { csv, keep, MAX_NOTE, standings, vote, votes } from "./votes.js";

/** @import { Pane } from "./panes.js" */

export const showVotes = () => openDialog(() => html`<${VotesDialog} />`);

/** @param {Pane} pane @param {string} name */
export const askVote = (pane, name) => openDialog(() => html`<${VoteDialog} pane=${pane} name=${name} />`);

/** @param {{pane: Pane, name: string}} props */
function VoteDialog({ pane, name }) {
  const [note, setNote] = useState("");
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    vote(pane, note);
    closeDialog();
  };
  return html`<${Dialog} title=${t("{pane} is best", { pane: name })} class="is-narrow" onClose=${closeDialog}>
    <form class="form" onSubmit=${send}>
      <label class="field"><span>${t("Why? (optional)")}</span>
        <input class="input" id="vote-note" autofocus autocomplete="off" maxlength=${MAX_NOTE} value=${note} onInput=${(/** @type {any} */ event) => setNote(event.target.value)} /></label>
      <div class="dialog-acts"><button type="submit" class="button button-primary">${t("Vote")}</button></div>
    </form>
  <//>`;
}

function VotesDialog() {
  const list = votes.value;
  return html`<${Dialog} title=${t("Votes")} class="is-wide votes" onClose=${closeDialog}>
    ${list.length === 0
      ? html`<p class="hint">${t("No votes yet. Ask all panes something, and say which answer is best.")}</p>`
      : html`<h3>${t("Standings")}</h3><${Standings} /><h3>${t("The last votes")}</h3><${LastVotes} />
          <div class="dialog-acts">
            <button type="button" class="button button-small" onClick=${() => keep([])}>${t("Forget all votes")}</button>
            <${CopyButton} withText label=${t("Copy as CSV")} text=${csv} />
          </div>`}
  <//>`;
}

function Standings() {
  return html`<div class="votes-box" tabindex="0" role="group" aria-label=${t("Standings")}><table class="votes-table">
    <thead><tr><th scope="col">${t("Model")}</th><th scope="col" class="number">${t("Best")}</th><th scope="col" class="number">${t("Compared")}</th><th scope="col" class="number">${t("Share")}</th></tr></thead>
    <tbody>${standings().map(
      ({ label, won, of }) => html`<tr key=${label}><th scope="row">${label}</th><td class="number">${number(won)}</td><td class="number">${number(of)}</td><td class="number">${number(won / of, { style: "percent" })}</td></tr>`,
    )}</tbody>
  </table></div>`;
}

function LastVotes() {
  const time = (/** @type {string} */ at) => moment(new Date(at), { dateStyle: "short", timeStyle: "short" });
  return html`<div class="votes-box" tabindex="0" role="group" aria-label=${t("The last votes")}><table class="votes-table">
    <thead><tr>${[t("Time"), t("Best"), t("Others"), t("Question"), t("Note")].map((title) => html`<th scope="col" key=${title}>${title}</th>`)}</tr></thead>
    <tbody>${[...votes.value].reverse().map(
      ({ at, blind, options, best, prompt, note }) => html`<tr key=${at}><td>${time(at)}${blind && html` <span class="badge">${t("blind")}</span>`}</td><td>${options[best]}</td>
        <td>${options.filter((_, other) => other !== best).join(" · ")}</td><td>${prompt}</td><td>${note}</td></tr>`,
    )}</tbody>
  </table></div>`;
}
