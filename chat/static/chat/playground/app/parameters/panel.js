// @ts-check
// The right column: parameters, tools and form of the output of the open chat. On a phone it is a sheet.
import { html, useEffect, useLayoutEffect, useRef } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { ToolsEditor } from "../tools/definitions.js";
import { JsonDialog } from "../tools/json_dialog.js";
import { OutputEditor } from "../tools/output.js";
import { ImportDialog } from "../tools/tool_dialog.js";
import { IconButton, Tabs, useModal } from "../view/controls.js";
import { isPhone, panelTab, togglePanel } from "../view/layers.js";
import { loadForm } from "./form_facts.js";
import { ParametersForm } from "./form_view.js";
import { JsonTab } from "./json_tab.js";
import { PresetsMenu } from "./presets_menu.js";
import { wrongFields } from "./validity.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { ComponentChildren } from "../../../vendor/preact.js" */

/** @type {Record<string, any>} */
const VIEWS = { parameters: ParametersForm, json: JsonTab, tools: ToolsEditor, output: OutputEditor };
/** Dialogs that are opened without the panel, too. */
export const dialogs = { JsonDialog, ImportDialog };
const TOOL_FIELDS = ["tools", "tool_choice", "parallel_tool_calls"];
const OUTPUT_FIELDS = ["response_format", "structured_outputs"];

const close = () => togglePanel(false);

/** @param {{open: Chat}} props */
export function Panel({ open }) {
  useEffect(() => {
    loadForm();
  }, []);
  const { parameters } = open.settings.value;
  const { json, ...wrong } = wrongFields(open).value;
  const has = (/** @type {string[]} */ names) => names.some((name) => parameters[name] !== undefined);
  const tabs = [
    { id: "parameters", title: t("Parameters"), mark: Object.keys(parameters).length + Object.keys(wrong).length > 0 },
    { id: "json", title: t("JSON"), mark: Boolean(json) },
    { id: "tools", title: t("Tools"), mark: has(TOOL_FIELDS) },
    { id: "output", title: t("Output"), mark: has(OUTPUT_FIELDS) },
  ];
  const current = VIEWS[panelTab.value] ? panelTab.value : "parameters";
  const Frame = isPhone.value ? Sheet : Column;
  return html`<${Frame} label=${t("Parameters")}>
    <header class="panel-head">
      <h2 tabindex="-1" autofocus>${t("Request")}</h2>
      <${PresetsMenu} key=${open.id} open=${open} />
      <${IconButton} icon="again" size=${16} id="reset-all" label=${t("Reset all")} disabled=${!tabs[0].mark && !json} onClick=${() => resetAll(open)} />
      ${isPhone.value ? html`<button type="button" class="button button-small button-primary" onClick=${close}>${t("Done")}</button>` : html`<${IconButton} icon="close" label=${t("Close")} onClick=${close} />`}
    </header>
    <${Tabs} label=${t("Parts of the request")} tabs=${tabs} current=${current} onPick=${(/** @type {string} */ id) => (panelTab.value = id)} />
    <div class="panel-body" role="tabpanel" aria-label=${tabs.find(({ id }) => id === current)?.title}><${VIEWS[current]} key=${open.id} open=${open} /></div>
  <//>`;
}

/** Take back every field; the system prompt stays. @param {Chat} open */
function resetAll(open) {
  const [{ parameters }, wrong] = [open.settings.value, wrongFields(open).value];
  wrongFields(open).value = {};
  acts.changeSettings(open, { parameters: {} });
  const undo = () => {
    acts.changeSettings(open, { parameters });
    wrongFields(open).value = wrong;
  };
  app.notice.value = { text: t("All parameters are the model's own again."), act: t("Undo"), run: undo };
}

const focusToggle = () => document.getElementById("panel-toggle")?.focus({ preventScroll: true });

/** @param {{label: string, children: ComponentChildren}} props */
function Column({ label, children }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => () => {
    if (ref.current?.contains(document.activeElement)) focusToggle();
  }, []);
  return html`<aside ref=${ref} class="panel" id="panel" aria-label=${label}>${children}</aside>`;
}

/** A modal dialog at the bottom of a small page. @param {{label: string, children: ComponentChildren}} props */
function Sheet({ label, children }) {
  return html`<dialog ...${useModal(close, focusToggle)} class="panel panel-sheet" id="panel" aria-label=${label}>${children}</dialog>`;
}
