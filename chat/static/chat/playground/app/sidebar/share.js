// @ts-check
import { html, useEffect, useState } from "../../../vendor/preact.js";
import { api, refusalOf } from "../core/api.js";
import { titleOf } from "../core/chat_list.js";
import { copyText } from "../core/clipboard.js";
import { mark, moment, t } from "../core/i18n.js";
import { CopyButton, Dialog, IconButton } from "../view/controls.js";
import { closeDialog } from "../view/layers.js";

/** @import { ChatFacts } from "../core/types.js" */

/** @typedef {{id: number, has_password: boolean, created_at: number, expires_at: number | null, token?: string, isCopied?: boolean}} Link `token`: of one just made */

const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;
const LIVES = [
  { seconds: HOUR_S, title: mark("One hour") },
  { seconds: DAY_S, title: mark("One day") },
  { seconds: 7 * DAY_S, title: mark("7 days") },
  { seconds: 30 * DAY_S, title: mark("30 days") },
  { seconds: 0, title: mark("Until revoked") },
];

/** @param {string} token */
const addressOf = (token) => `${location.origin}/shared/${token}`;

/** Links that show a copy of a chat to whoever has them. @param {{facts: ChatFacts}} props */
export function ShareDialog({ facts }) {
  const [links, setLinks] = useState(/** @type {Link[] | null} */ (null));
  const [lives, setLives] = useState(7 * DAY_S);
  const [password, setPassword] = useState("");
  const [problem, setProblem] = useState("");
  const path = `conversations/${facts.id}/links`;
  const tried = async (/** @type {() => Promise<void>} */ act) => setProblem(await refusalOf(act));
  useEffect(() => void tried(async () => setLinks((await api("GET", path)).data)), []);
  const make = (/** @type {Event} */ event) => {
    event.preventDefault();
    tried(async () => {
      const made = await api("POST", path, { ...(lives ? { expires_in_s: lives } : {}), ...(password ? { password } : {}) });
      const isCopied = await copyText(addressOf(made.token));
      setLinks([{ ...made, isCopied }, ...(links ?? []).map((link) => ({ ...link, isCopied: false }))]);
      setPassword("");
    });
  };
  const revoke = (/** @type {number} */ id) =>
    tried(async () => {
      await api("DELETE", `${path}/${id}`);
      setLinks((links ?? []).filter((link) => link.id !== id));
    });
  return html`<${Dialog} title=${t("Share “{title}”", { title: titleOf(facts) })} class="share" onClose=${closeDialog}>
    <p class="share-what">${t("A link shows a copy of the chat as it is now: its title and the texts that are shown, without parameters and attachments. Whoever has the link can read it, without an account; what is asked later is not in it.")}</p>
    <form class="share-new" onSubmit=${make}>
      <label class="field"><span>${t("The link works")}</span>
        <select class="input" id="share-life" value=${lives} onChange=${(/** @type {any} */ event) => setLives(Number(event.target.value))}>
          ${LIVES.map(({ seconds, title }) => html`<option key=${seconds} value=${seconds}>${t(title)}</option>`)}</select></label>
      <label class="field"><span>${t("Password (optional)")}</span><input class="input" id="share-password" type="text" autocomplete="off" autocapitalize="none" spellcheck="false" minlength="6" maxlength="128" value=${password}
        onInput=${(/** @type {any} */ event) => setPassword(event.target.value)} /></label>
      <button class="button button-primary" type="submit" id="share-make">${t("Make and copy a link")}</button>
    </form>
    <p class="hint">${t("A password has at least 6 characters, and cannot be shown again: tell it to the readers.")}</p>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${links && links.length > 0 && html`<h3 class="share-heading">${t("Links")}</h3><ul class="share-links">${links.map((link) => html`<${LinkRow} key=${link.id} link=${link} onRevoke=${() => revoke(link.id)} />`)}</ul>`}
  <//>`;
}

/** @param {{link: Link, onRevoke: () => void}} props */
function LinkRow({ link, onRevoke }) {
  const address = link.token && addressOf(link.token);
  const isOver = link.expires_at !== null && 1000 * link.expires_at < Date.now();
  const made = t("Made {time}", { time: moment(new Date(1000 * link.created_at)) });
  const end = link.expires_at === null ? t("until revoked") : isOver ? t("expired") : t("until {time}", { time: moment(new Date(1000 * link.expires_at)) });
  return html`<li class=${`share-link ${isOver ? "is-over" : ""}`}>
    ${address && html`<div class="share-address"><input class="input" readonly aria-label=${t("Address of the link")} value=${address} onFocus=${(/** @type {any} */ event) => event.target.select()} />
      <${CopyButton} withText text=${() => address} label=${t("Copy the link")} /></div>
      <p class="hint">${link.isCopied ? t("It is copied, and shown here once.") : t("Copy it now: it is shown once.")}</p>`}
    <div class="share-foot"><span>${made}, ${end}${link.has_password && html`, ${t("with a password")}`}</span><${IconButton} icon="trash" size=${16} label=${t("Revoke the link made {time}", { time: moment(new Date(1000 * link.created_at)) })} onClick=${onRevoke} /></div>
  </li>`;
}
