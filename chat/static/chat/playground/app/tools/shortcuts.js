// @ts-check
// Below the message box: the short ways to answers in JSON and to tools, which say what is asked for and end it.
import { html } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { focusSoon } from "../palette/places.js";
import { Icon } from "../view/icons.js";
import { dialog, openDialog, togglePanel } from "../view/layers.js";
import { constraintOf, schemaName, withConstraint } from "./constraint.js";
import { entriesOf, put } from "./offered.js";

/** @import { Chat } from "../core/chat.js" */

const isTouch = matchMedia("(pointer: coarse)");
const done = () => {
  if (!isTouch.matches) focusSoon("#composer-text"); // there it would bring up the keyboard
};

/** The dialogs come with the panel. @param {Chat} open @param {"JsonDialog" | "ImportDialog"} name */
async function show(open, name) {
  const wasShown = app.chat.value;
  const { dialogs } = await import("../parameters/panel.js");
  if (dialog.value || app.chat.value !== wasShown) return; // the reader has gone on
  app.notice.value = null; // its Undo would take back what comes now
  openDialog(() => html`<${dialogs[name]} open=${open} onDone=${done} />`);
}

/** @param {Chat} open */
export const showJson = (open) => show(open, "JsonDialog");
/** @param {Chat} open */
export const showImport = (open) => show(open, "ImportDialog");

/** Do what ends a form or tools, and offer to take it back. @param {Chat} open @param {string} text @param {() => void} act */
function end(open, text, act) {
  const before = open.settings.value;
  act();
  const after = open.settings.value;
  const ended = Object.fromEntries(Object.entries(before.parameters).filter(([name, value]) => value !== after.parameters[name]));
  const off = before.tools_off === after.tools_off ? {} : { tools_off: before.tools_off };
  app.notice.value = { text, act: t("Undo"), run: () => acts.changeSettings(open, { parameters: { ...open.settings.value.parameters, ...ended }, ...off }) };
}

/** @param {{open: Chat}} props */
export function Shortcuts({ open }) {
  const { parameters } = open.settings.value;
  const { mode } = constraintOf(parameters);
  const entries = entriesOf(open);
  const num = entries.filter(({ isOn }) => isOn).length;
  const endJson = () => end(open, t("Answers are free text again."), () => acts.changeSettings(open, { parameters: withConstraint(parameters, { mode: "off" }) }));
  const endTools = () => end(open, t("The tools are not offered any more; they are kept under Tools."), () => put(open, entries.map(({ tool }) => ({ tool, isOn: false }))));
  const form = mode === "schema" ? schemaName(parameters) : mode === "json" ? t("any object") : "";
  return html`<div class="shortcuts" role="group" aria-label=${t("Form of the answer and tools")}>
    <${Shortcut} id="shortcut-json" text=${t("JSON")} name=${form} hint=${t("Answers as JSON, by a schema or an example")} onOpen=${() => showJson(open)} onEnd=${form && endJson} endLabel=${t("Answers in free text")} />
    <${Shortcut} id="shortcut-tools" opensPanel=${num > 0} text=${num ? plural(num, "one tool", "{n} tools") : t("Tools")} hint=${num ? t("Show the tools") : t("Import tools that the model may call")} onOpen=${() => (num ? togglePanel(true, "tools") : showImport(open))}
      onEnd=${num > 0 && endTools} endLabel=${t("Offer no tools")} />
  </div>`;
}

/** @param {{id: string, text: string, name?: string, hint: string, opensPanel?: boolean, onOpen: () => void, onEnd: (() => void) | false | "", endLabel: string}} props `onEnd`: if it is in use */
function Shortcut({ id, text, name, hint, opensPanel = false, onOpen, onEnd, endLabel }) {
  return html`<span class=${`shortcut ${onEnd ? "is-on" : ""}`}><button type="button" id=${id} class="shortcut-open" aria-haspopup=${opensPanel ? undefined : "dialog"} title=${hint} onClick=${onOpen}>${text}${name && html`<span class="shortcut-name">: ${name}</span>`}</button>
    ${onEnd && html`<button type="button" class="shortcut-end" aria-label=${endLabel} title=${endLabel} onClick=${() => (onEnd(), document.getElementById(id)?.focus({ preventScroll: true }))}><${Icon} name="close" size=${12} /></button>`}</span>`;
}
