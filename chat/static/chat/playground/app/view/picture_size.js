// @ts-check
// The sizes in which an image of a message can be sent. A smaller one takes fewer tokens of many models.
import { html } from "../../../vendor/preact.js";
import { ApiProblem } from "../core/api.js";
import { sourceOf } from "../core/attached.js";
import { pixels, t } from "../core/i18n.js";
import { limitsOf, origins, pictureFrom, Refusal } from "./attachments.js";
import { Menu, MenuAct } from "./controls.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { DraftFile, Media } from "../core/types.js" */
/** @import { Sizing } from "./files.js" */

/** What the longer side of an image can be made smaller to. */
const SIDES = [2048, 1024, 512, 256];

/** @param {{file: DraftFile, sizing: Sizing}} props */
export function SizeMenu({ file, sizing: { open, change } }) {
  const media = /** @type {Media} */ (file.media);
  const sides = sidesOf(open, media);
  if (sides.length === 1) return null;
  const present = Math.max(media.width ?? 0, media.height ?? 0);
  return html`<${Menu} icon="resize" label=${t("Size of {name}", { name: file.name })}>${sides.map(
    (side) => html`<${MenuAct} key=${side} icon=${side === present ? "check" : "image"} onClick=${() => change(file, () => resized(open, file, side))}>
      ${t("{n} pixels", { n: pixels(side) })}<//>`,
  )}<//>`;
}

/** What the longer side of an image may be made, the longest first. @param {Chat} open @param {Media} media @returns {number[]} */
function sidesOf(open, { url, width = 0, height = 0, was }) {
  const longest = Math.min(limitsOf(open).maxSide, Math.max(...((origins.has(url) && was) || [width, height])));
  return [longest, ...SIDES.filter((side) => side < longest)];
}

/**
 * Make an image of a message anew, of the file that it was made of, or what is kept of it after a reload.
 * @param {Chat} open @param {DraftFile} file @param {number} side how long its longer side is to be at most
 * @returns {Promise<{read: DraftFile[], problem: string}>}
 */
async function resized(open, file, side) {
  const { name } = file;
  const media = /** @type {Media} */ (file.media);
  const others = (open.draft.peek().files ?? []).filter((other) => other !== file);
  try {
    const origin = origins.get(media.url) ?? (await fileAt(name, sourceOf(media) ?? ""));
    return { read: [{ ...(await pictureFrom(open, origin, others, side)), name }], problem: "" };
  } catch (error) {
    if (!(error instanceof Refusal) && !(error instanceof ApiProblem) && !(error instanceof TypeError)) throw error;
    return { read: [], problem: error instanceof Refusal ? error.message : t("{name} could not be attached: {problem}", { name, problem: error.message }) };
  }
}

/** @param {string} name @param {string} url */
async function fileAt(name, url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Refusal(t("{name} is not there any more.", { name }));
  const blob = await answer.blob();
  return new File([blob], name, { type: blob.type });
}
