// @ts-check
// Every act, chat and model by its name.
import { html, useMemo, useRef, useState } from "../../../vendor/preact.js";
import { comparing, isBlind } from "../compare/panes.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { titleOf } from "../core/chat_list.js";
import { t } from "../core/i18n.js";
import { Dialog } from "../view/controls.js";
import { closeDialog, openDialog } from "../view/layers.js";
import { shownKeys } from "./bindings.js";
import { matching } from "./matching.js";
import { placeNow } from "./places.js";

/** @import { Act } from "./bindings.js" */
/** @import { Place } from "./places.js" */

const MAX_CHATS = 30;

/** @typedef {{id: string, group: string, title: string, keys?: string, run: () => void}} Item */

/** @param {Act[]} all */
export function showPalette(all) {
  const place = placeNow();
  // Without a message that has the focus, its acts mean the last one.
  const at = { ...place, turn: place.turn ?? place.open.path.value.at(-1) };
  openDialog(() => html`<${Palette} all=${all} place=${at} />`);
}

/** @param {Act[]} all @param {Place} place @returns {Item[]} */
function itemsAt(all, place) {
  const listed = all.filter(({ id, when }) => id !== "palette" && (when?.(place) ?? true));
  const ofActs = listed.map((act) => ({ id: act.id, group: "", title: act.title(), keys: shownKeys(act), run: () => act.run(place) }));
  const { model } = place.open.settings.value;
  const others = comparing.value && isBlind.value ? [] : app.models.value.filter(({ id }) => id !== model);
  const ofModels = others.map(({ id }) => ({ id: `model-${id}`, group: t("Models"), title: t("Use {model}", { model: id }), run: () => acts.changeSettings(place.open, { model: id }) }));
  const chats = [...new Map([...app.chatList.pinned.value, ...app.chatList.list.value].map((chat) => [chat.id, chat])).values()].slice(0, MAX_CHATS);
  const ofChats = chats.map(({ id, title }) => ({ id: `chat-${id}`, group: t("Chats"), title: titleOf({ title }), run: () => acts.openChat(id) }));
  return [...ofActs, ...ofModels, ...ofChats];
}

/** @param {{all: Act[], place: Place}} props */
function Palette({ all, place }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef(/** @type {HTMLUListElement | null} */ (null));
  const items = useMemo(() => itemsAt(all, place), [all, place]);
  const found = useMemo(() => matching(items, query), [items, query]);
  const run = (/** @type {Item | undefined} */ item) => {
    if (!item) return;
    closeDialog();
    // The dialog gives the focus back first.
    requestAnimationFrame(() => item.run());
  };
  const go = (/** @type {number} */ to) => {
    setAt(to);
    list.current?.querySelector(`#palette-${to}`)?.scrollIntoView({ block: "nearest" });
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    const last = found.length - 1;
    if (event.key === "Enter" && !event.isComposing) run(found[at]);
    else if (event.key === "ArrowDown") go(at >= last ? 0 : at + 1);
    else if (event.key === "ArrowUp") go(at <= 0 ? last : at - 1);
    else if (event.key === "k" && (event.ctrlKey || event.metaKey)) closeDialog();
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title=${t("All acts")} class="palette" onClose=${closeDialog}>
    <input class="input palette-filter" type="text" role="combobox" autofocus autocomplete="off" spellcheck=${false} placeholder=${t("What would you like to do?")} aria-label=${t("Filter")}
      aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" aria-activedescendant=${found.length ? `palette-${at}` : undefined} value=${query}
      onInput=${(/** @type {any} */ event) => (setQuery(event.target.value), setAt(0))} onKeyDown=${key} />
    <ul class="palette-list" id="palette-list" role="listbox" aria-label=${t("Acts")} ref=${list}>
      ${found.map(
        (item, number) => html`<li key=${item.id} id=${`palette-${number}`} class="palette-item" role="option" aria-selected=${number === at} onMouseMove=${() => setAt(number)} onClick=${() => run(item)}>
          <span class="palette-title">${item.title}</span>${item.group && html`<span class="palette-group">${item.group}</span>`}${item.keys && html`<kbd>${item.keys}</kbd>`}</li>`,
      )}
    </ul>
    <p class="hint palette-none" role="status">${found.length === 0 ? t("Nothing is called that.") : ""}</p>
  <//>`;
}
