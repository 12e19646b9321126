// @ts-check
// Keeps what is compared in the tab, so that a reload of the page loses nothing of it. The server has none of it before a pane is made a chat.
import { batch, effect, signal } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { keptContent } from "../core/answers.js";
import * as app from "../core/app.js";
import { Chat } from "../core/chat.js";
import { t } from "../core/i18n.js";
import { freshId } from "../core/ids.js";
import { activate, comparing, isBlind, panes, scrollsInStep, shared } from "./panes.js";

/** @import { Pane } from "./panes.js" */
/** @import { ChatSettings, Content, Draft, TurnFacts } from "../core/types.js" */

const NAME = "panes";
const SAVE_MS = 600;
/** Browsers keep some millions for a tab, which what is on its way to the server needs too. */
const MAX_CHARS = 1_000_000;

/**
 * @typedef {{id: string, settings: ChatSettings, draft: Draft, head: string, turns: TurnFacts[], isDetached: boolean}} KeptPane `id`: of its chat
 * @typedef {{panes: KeptPane[], draft: Draft, isBlind: boolean, scrollsInStep: boolean, active: number, address: string}} Kept
 *   `draft`: of all panes; `active`: which pane has the focus, -1: none, as another chat is shown; `address`: the path of the page
 */

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let isWhole = true;

/**
 * Have compared chats again as they were when the page was left, and keep them from now on. Return whether they are shown: not where the address is
 * another one.
 */
export function resumePanes() {
  /** @type {Kept | null} */
  const kept = app.storage.read("tab", NAME);
  if (kept) batch(() => restore(kept));
  addEventListener("pagehide", keep);
  effect(() => {
    // Not what a running answer says: the server has that, and what was shown of it is kept when the page goes.
    for (const { chat, isDetached } of panes.value) {
      for (const { value } of [chat.revision, chat.isBusy, chat.head, chat.settings, chat.draft, isDetached]) void value;
    }
    for (const { value } of [app.chat, shared.value.draft, isBlind, scrollsInStep]) void value;
    clearTimeout(timer);
    timer = setTimeout(keep, SAVE_MS);
  });
  return comparing.value;
}

function keep() {
  clearTimeout(timer);
  if (app.storage.isClosed) return;
  const [wasWhole, isNone] = [isWhole, panes.value.length === 0];
  if (isNone) app.storage.write("tab", NAME, null);
  // Log-probabilities take a hundred times the room of the text.
  isWhole = isNone || write(stateNow(keptContent)) || write(stateNow((content) => keptContent(content, 0)));
  if (wasWhole && !isWhole) acts.tell(t("This tab cannot keep all of the comparison: a reload of the page loses the latest of it. Make a pane a chat of its own to keep it."));
}

/** Return whether the browser keeps it. @param {Kept} state */
const write = (state) => JSON.stringify(state).length <= MAX_CHARS && app.storage.write("tab", NAME, state);

/** @param {(content: Content | undefined) => Content | undefined} contentOf what is kept of a content @returns {Kept} */
function stateNow(contentOf) {
  return {
    panes: panes.value.map(({ chat, isDetached }) => ({
      id: chat.id,
      settings: chat.settings.value,
      draft: chat.draft.value,
      head: chat.head.value,
      turns: [...chat.turns.values()].map(({ facts }) => ({ ...facts, content: contentOf(facts.content) })),
      isDetached: isDetached.value,
    })),
    draft: shared.value.draft.value,
    isBlind: isBlind.value,
    scrollsInStep: scrollsInStep.value,
    active: panes.value.findIndex(({ chat }) => chat === app.chat.value),
    address: location.pathname,
  };
}

/** @param {Kept} kept */
function restore(kept) {
  panes.value = kept.panes.map(paneFrom);
  shared.value.draft.value = kept.draft;
  isBlind.value = kept.isBlind;
  scrollsInStep.value = kept.scrollsInStep;
  const active = panes.value[kept.active];
  if (!active || kept.address !== location.pathname) return;
  app.behind.value = app.chat.value;
  app.editing.value = acts.editedTurn(active.chat);
  activate(active);
}

/** A pane as it was, whose running answers are read again. @param {KeptPane} kept @returns {Pane} */
function paneFrom({ id, settings, draft, head, turns, isDetached }) {
  const chat = new Chat(app.settingsFrom(settings), { id, isTemporary: true });
  for (const facts of turns) chat.add(facts);
  chat.head.value = head;
  chat.draft.value = draft;
  for (const [turn, number] of Object.entries(draft.shown ?? {})) acts.showChoice(chat, turn, number);
  app.openChats.set(id, chat);
  app.attachAll(chat);
  return { id: freshId(), chat, isDetached: signal(isDetached) };
}
