// @ts-check
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import { t } from "../core/i18n.js";
import { Dialog } from "../view/controls.js";
import { Icon } from "../view/icons.js";
import { closeDialog } from "../view/layers.js";
import { setTags } from "./chat_acts.js";

/** @import { ChatFacts } from "../core/types.js" */

const MAX_TAGS = 20; // of a chat, as the server has it
const MAX_SUGGESTED = 12;

/** @param {string[]} tags @param {string} tag */
const has = (tags, tag) => tags.some((other) => other.toLowerCase() === tag.toLowerCase());

/** The tags of a chat. @param {{facts: ChatFacts}} props */
export function TagsDialog({ facts }) {
  const [tags, setNow] = useState(facts.tags);
  const [known, setKnown] = useState(/** @type {string[]} */ ([]));
  const ref = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    ref.current?.focus();
    api("GET", "facets").then(
      (found) => setKnown(found.tags),
      (error) => {
        if (!(error instanceof ApiProblem)) throw error; // then there is nothing to suggest
      },
    );
  }, []);
  const isFull = tags.length >= MAX_TAGS;
  const add = (/** @type {string} */ name) => {
    const tag = name.trim().replace(/\s+/g, " ");
    if (tag && !isFull && !has(tags, tag)) setNow([...tags, tag]);
  };
  const addTyped = () => {
    add(ref.current?.value ?? "");
    if (ref.current && !isFull) ref.current.value = "";
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing || (event.key !== "Enter" && event.key !== ",") || !ref.current?.value.trim()) return;
    event.preventDefault();
    addTyped();
  };
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    const typed = (ref.current?.value ?? "").trim();
    closeDialog();
    setTags(facts, typed && !isFull && !has(tags, typed) ? [...tags, typed] : tags);
  };
  const drop = (/** @type {string} */ tag) => {
    setNow(tags.filter((other) => other !== tag));
    ref.current?.focus();
  };
  const suggested = known.filter((tag) => !has(tags, tag)).slice(0, MAX_SUGGESTED);
  return html`<${Dialog} title=${t("Tags of “{title}”", { title: facts.title || t("Untitled chat") })} class="is-small" onClose=${closeDialog}>
    <form class="form" onSubmit=${save}>
      ${tags.length > 0 && html`<ul class="tags" aria-label=${t("Tags")}>${tags.map(
        (tag) => html`<li key=${tag}><button type="button" class="chip" aria-label=${t("Remove the tag {tag}", { tag })} onClick=${() => drop(tag)}><span>${tag}</span><${Icon} name="close" size=${12} /></button></li>`,
      )}</ul>`}
      <label class="field"><span>${t("Add a tag")}</span><input ref=${ref} class="input" id="tag-name" maxlength="40" autocomplete="off" disabled=${isFull} onKeyDown=${key} /></label>
      <p class="hint">${isFull ? t("A chat has at most {n} tags.", { n: MAX_TAGS }) : t("Enter adds it. The search can be filtered by a tag.")}</p>
      ${suggested.length > 0 && !isFull && html`<ul class="tags" aria-label=${t("Tags of other chats")}>${suggested.map(
        (tag) => html`<li key=${tag}><button type="button" class="chip" onClick=${() => add(tag)}><${Icon} name="plus" size=${12} /><span>${tag}</span></button></li>`,
      )}</ul>`}
      <div class="dialog-acts"><button type="button" class="button" onClick=${closeDialog}>${t("Cancel")}</button>
        <button class="button button-primary" type="submit">${t("Save")}</button></div>
    </form>
  <//>`;
}
