// @ts-check
// Every act that has a key or stands in the palette. What it does is in the core or in a room; here is what it is called, and when it can be done.
import { canGoBack, comparing, endComparing, focusPane, goBack, panes, startComparing } from "../compare/panes.js";
import * as acts from "../core/acts.js";
import { textOf } from "../core/answers.js";
import * as app from "../core/app.js";
import { copyText } from "../core/clipboard.js";
import { t } from "../core/i18n.js";
import { page } from "../core/page.js";
import { deleteRow } from "../sidebar/row.js";
import { renaming } from "../sidebar/state.js";
import { showImport, showJson } from "../tools/shortcuts.js";
import { togglePanel, toggleSidebar } from "../view/layers.js";
import { shownKeys } from "./bindings.js";
import { focusMessages, focusSoon, placeNow, showTurn, stepMessage } from "./places.js";

/** @import { Turn } from "../core/tree.js" */
/** @import { Act } from "./bindings.js" */
/** @import { Place } from "./places.js" */

/** @typedef {Place & {turn: Turn}} AtTurn */

/** @type {(run: (place: AtTurn) => void) => (place: Place) => void} */
const withTurn = (run) => (place) => place.turn && run(/** @type {AtTurn} */ (place));

const isIdle = (/** @type {Place} */ { open, turn }) => Boolean(turn) && !open.isBusy.value;
const isAnswer = (/** @type {Place} */ place) => isIdle(place) && place.turn?.facts.role === "assistant";
const hasText = (/** @type {Place} */ { open, turn }) => Boolean(turn && textOf(turn.facts.content, open.shownChoice(turn)));
const hasVersions = (/** @type {Place} */ { open, turn }) => Boolean(turn && open.siblings(turn).length > 1);

/** @param {number} step */
const version = (step) =>
  withTurn(({ open, turn }) => {
    const siblings = open.siblings(turn);
    const other = siblings[siblings.indexOf(turn) + step];
    if (!other) return;
    acts.pick(open, other);
    showTurn(other.id);
  });

const copy = withTurn(async ({ open, turn }) => {
  const isCopied = await copyText(textOf(turn.facts.content, open.shownChoice(turn)));
  app.notice.value = { text: isCopied ? t("Copied") : t("Not allowed by the browser"), isProblem: !isCopied };
});

/** The chat of a row. @param {Place} place */
const chatOf = ({ row }) => row?.dataset.chat ?? "";

/** The button of a token view that leads to the next surprising token. @param {Place} place */
const nextSurprise = ({ tokens }) => /** @type {HTMLElement | null | undefined} */ (tokens?.querySelector("[data-next-surprise]:enabled"));

/** @param {string} theme */
const setTheme = (theme) => () => /** @type {any} */ (globalThis).lightconeTheme.set(theme);

const goToParameters = (/** @type {string} */ tab) => () => {
  togglePanel(true, tab);
  focusSoon(".panel :is([aria-selected='true'], input, textarea, select, button)");
};

const goToSidebar = (/** @type {string} */ selector) => () => {
  toggleSidebar(true);
  focusSoon(`.sidebar ${selector}`);
};

/** @type {Act[]} */
const ofPanes = [0, 1, 2, 3].map((at) => ({
  id: `pane-${at + 1}`,
  title: () => t("Go to pane {n}", { n: at + 1 }),
  keys: `g ${at + 1}`,
  when: () => comparing.value && at < panes.value.length,
  run: () => focusPane(at),
}));

/** @type {Act[]} */
export const ACTS = [
  { id: "palette", title: () => t("All acts"), keys: "Mod+k", run: () => import("./palette.js").then(({ showPalette }) => showPalette(ACTS)) },
  { id: "keys", title: () => t("Keys and their settings"), keys: "Mod+/", run: () => import("./keys_dialog.js").then(({ showKeys }) => showKeys(ACTS)) },
  { id: "send", title: () => t("Send the message"), keys: "Mod+Enter", run: () => /** @type {HTMLFormElement | null} */ (document.getElementById("composer"))?.requestSubmit() },
  { id: "stop", title: () => t("Stop the answer"), when: ({ open }) => open.isBusy.value, run: ({ open }) => acts.stop(open) },
  { id: "new-chat", title: () => t("New chat"), keys: "g n", run: () => acts.newChat() },
  { id: "temporary-chat", title: () => t("New temporary chat"), run: () => acts.newChat({ isTemporary: true }) },
  { id: "search", title: () => t("Search the chats"), keys: "g f", run: goToSidebar("input[type='search']") },
  { id: "raw-json", title: () => t("Raw JSON of the request"), keys: "g j", run: goToParameters("json") },
  { id: "json-answers", title: () => t("Answers as JSON, by a schema or an example"), keys: "g o", run: ({ open }) => showJson(open) },
  { id: "import-tools", title: () => t("Import tools that the model may call"), keys: "g t", run: ({ open }) => showImport(open) },
  { id: "view-code", title: () => t("View code"), keys: "g v", run: async ({ open }) => (await import("../insight/view_code.js")).showCode(open) },
  { id: "messages", title: () => t("Go to the messages"), keys: "g m", run: focusMessages },
  { id: "parameters", title: () => t("Go to the parameters"), keys: "g p", run: goToParameters("parameters") },
  { id: "sidebar", title: () => t("Go to the list of chats"), keys: "g s", run: goToSidebar(":is(a, button, input):not([id='sidebar-close'])") },
  { id: "compare", title: () => t("Compare models side by side"), when: () => !comparing.value, run: ({ open }) => startComparing(open) },
  { id: "back-to-panes", title: () => t("Go back to the compared chats"), when: canGoBack, run: goBack },
  { id: "end-comparing", title: () => t("End the comparison"), when: () => comparing.value, run: endComparing },
  ...ofPanes,
  { id: "previous", title: () => t("Previous message"), keys: "Alt+ArrowUp", repeats: true, run: () => stepMessage(-1) },
  { id: "next", title: () => t("Next message"), keys: "Alt+ArrowDown", repeats: true, run: () => stepMessage(1) },
  { id: "edit", title: () => t("Edit the message"), keys: "e", ofMessage: true, when: isIdle, run: withTurn(({ turn }) => (app.editing.value = turn.id)) },
  { id: "regenerate", title: () => t("Regenerate the answer"), keys: "r", ofMessage: true, when: isAnswer, run: withTurn(({ open, turn }) => acts.regenerate(open, turn)) },
  { id: "continue", title: () => t("Continue the answer"), keys: "c", ofMessage: true, when: (place) => isAnswer(place) && hasText(place), run: withTurn(({ open, turn }) => acts.continueFrom(open, turn)) },
  { id: "copy", title: () => t("Copy the message"), keys: "y", ofMessage: true, when: hasText, run: copy },
  { id: "earlier", title: () => t("Earlier version of the message"), keys: "ArrowLeft", repeats: true, ofMessage: true, when: hasVersions, run: version(-1) },
  { id: "later", title: () => t("Later version of the message"), keys: "ArrowRight", repeats: true, ofMessage: true, when: hasVersions, run: version(1) },
  { id: "next-surprise", title: () => t("Next surprising token"), keys: "n", repeats: true, when: (place) => Boolean(nextSurprise(place)), run: (place) => nextSurprise(place)?.click() },
  { id: "rename-chat", title: () => t("Rename the chat of the list"), keys: "F2", when: ({ row }) => Boolean(row), run: (place) => (renaming.value = chatOf(place)) },
  { id: "delete-chat", title: () => t("Delete the chat of the list"), keys: "Delete", when: ({ row }) => Boolean(row), run: ({ row }) => row && deleteRow(row) },
  { id: "theme-system", title: () => t("Theme: as the system"), run: setTheme("system") },
  { id: "theme-light", title: () => t("Theme: light"), run: setTheme("light") },
  { id: "theme-dark", title: () => t("Theme: dark"), run: setTheme("dark") },
  { id: "console", title: () => t("Admin console"), when: () => page.has_console, run: () => location.assign(page.urls.console) },
  { id: "docs", title: () => t("API documentation"), run: () => location.assign(page.urls.docs) },
];

export const openPalette = () => runAct("palette");

/** Do an act of this name. @param {string} id */
export const runAct = (id) => ACTS.find((act) => act.id === id)?.run(placeNow());

/** The present keys of an act as they are shown, "" for none. @param {string} id */
export function keysOfAct(id) {
  const act = ACTS.find((other) => other.id === id);
  return act ? shownKeys(act) : "";
}
