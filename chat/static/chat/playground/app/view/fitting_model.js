// @ts-check
// Whether a model takes what a message has beside text, and which others do.
import { html } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { KINDS, mediaIn } from "../core/attached.js";
import { number, t } from "../core/i18n.js";
import { page } from "../core/page.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { MediaKind, ModelFacts } from "../core/types.js" */

const MAX_NAMED = 3;

/** @typedef {{text: string, models?: string[]}} Misfit why a message cannot be sent; `models`: those that would take it, if that is why */

/** What of a kind a model takes. @param {ModelFacts | undefined} facts @param {MediaKind} kind */
const takes = (facts, kind) => {
  const { modality } = KINDS[kind];
  return modality === null || Boolean(facts?.modalities?.includes(modality));
};

/** Why what is written cannot be sent with its files, null if it can. @param {Chat} open @param {Chat[]} asked the chats that it is sent to @returns {Misfit | null} */
export function misfitOf(open, asked) {
  const files = open.draft.value.files ?? [];
  for (const chat of asked) {
    const path = chat.path.value.map(({ facts }) => facts);
    const misfit = misfitWith(chat, mediaIn([], files).map(({ kind }) => kind), mediaIn(path).map(({ kind }) => kind));
    if (misfit) return misfit;
  }
  return null;
}

/** @param {Chat} chat @param {MediaKind[]} written kinds of what is written @param {MediaKind[]} before kinds of what the chat has @returns {Misfit | null} */
function misfitWith(chat, written, before) {
  const { model } = chat.settings.value;
  const facts = app.modelOf(model);
  if (!facts) return null; // the line of the model says so
  const kind = [...written, ...before].find((one) => !takes(facts, one));
  if (kind) {
    const models = app.models.value.filter((other) => takes(other, kind)).map(({ id }) => id);
    return { text: reasonOf(facts, kind, written.includes(kind)), models };
  }
  for (const one of /** @type {MediaKind[]} */ (["image_url", "input_audio", "file"])) {
    const n = [...written, ...before].filter((other) => other === one).length;
    const max = one === "file" ? page.media.max_files : page.media.max_items;
    if (n > max) return { text: t("A request takes {max} files of a kind, and with this message the chat has {n}. Take some out, or begin a new chat.", { max: number(max), n: number(n) }) };
  }
  return null;
}

/** @param {ModelFacts} facts @param {MediaKind} kind @param {boolean} isWritten */
function reasonOf({ id: model }, kind, isWritten) {
  if (kind === "image_url") return isWritten ? t("{model} does not take images.", { model }) : t("This chat has images, which {model} does not take.", { model });
  return isWritten ? t("{model} does not take sound.", { model }) : t("This chat has sound, which {model} does not take.", { model });
}

/** The line above the message box that says so, with the models that can. @param {{misfit: Misfit, chats: Chat[], id: string}} props */
export function MisfitLine({ misfit: { text, models }, chats, id }) {
  const pick = (/** @type {string} */ model) => () => chats.forEach((chat) => acts.changeSettings(chat, { model }));
  return html`<p class="model-line is-problem misfit" id=${id} role="status"><span>${text}${models && ` ${models.length ? t("These do:") : t("No other model here does.")}`}</span>
    ${models?.slice(0, MAX_NAMED).map((model) => html`<button type="button" class="button button-small" aria-label=${t("Use {model}", { model })} onClick=${pick(model)}>${model}</button>`)}</p>`;
}
