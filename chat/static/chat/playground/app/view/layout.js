// @ts-check
// The page: chats at the left, the conversation, parameters at the right.
import { html } from "../../../vendor/preact.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { comparing, paneName, panes } from "../compare/panes.js";
import { Sidebar } from "../sidebar/sidebar.js";
import { Shortcuts } from "../tools/shortcuts.js";
import { Composer } from "./composer.js";
import { IconButton } from "./controls.js";
import { dialog, isPhone, panelIsOpen, sidebarIsOpen, togglePanel, toggleSidebar } from "./layers.js";
import { lazy } from "./lazy.js";
import { SkipLinks } from "./skip_links.js";
import { Topbar } from "./topbar.js";
import { Transcript } from "./transcript.js";

const Panel = lazy(async () => (await import("../parameters/panel.js")).Panel);
const Panes = lazy(async () => (await import("../compare/panes_view.js")).Panes);

// What screen readers hear at the end of an answer: what is left of it if it is the one that they hear, and whose end it is.
app.endListeners.add((open, turn) => {
  const isHeard = open === app.chat.value;
  const at = comparing.value ? panes.value.findIndex(({ chat }) => chat === open) : -1;
  const num = turn.facts.usage?.completion_tokens;
  if (isHeard) app.speaker.finish(turn);
  if (num === undefined) return;
  if (at >= 0) app.speaker.say(`${paneName(at)}: ${plural(num, "finished, one token.", "finished, {n} tokens.")}`);
  else if (isHeard) app.speaker.say(plural(num, "Finished, one token.", "Finished, {n} tokens."));
});

export function Layout() {
  const open = app.chat.value;
  const close = () => {
    toggleSidebar(false);
    togglePanel(false);
  };
  // On phones the open column is all that can be reached.
  const isCovered = isPhone.value && (sidebarIsOpen.value || panelIsOpen.value);
  return html`${!isCovered && html`<${SkipLinks} />`}
    <div class=${`page ${sidebarIsOpen.value ? "has-sidebar" : ""} ${panelIsOpen.value ? "has-panel" : ""}`}>
      ${sidebarIsOpen.value && html`<${Sidebar} open=${open} />`}
      <div class="column" inert=${isCovered}>
        <${Topbar} open=${open} />
        ${comparing.value
          ? html`<${Panes}><${Notice} /><//>`
          : html`<${Transcript} key="main" open=${open} /><${Notice} /><${Composer} open=${open}><${Shortcuts} open=${open} /><//>`}
      </div>
      ${panelIsOpen.value && html`<${Panel} open=${open} />`}
      ${(sidebarIsOpen.value || panelIsOpen.value) && html`<div class="scrim" onClick=${close}></div>`}
    </div>
    ${dialog.value?.()}
    <div class="visually-hidden" id="announcer" aria-live="polite">${app.speaker.text.value}</div>`;
}

function Notice() {
  const notice = app.notice.value;
  if (!notice) return null;
  const act = () => {
    app.notice.value = null;
    notice.run?.();
  };
  return html`<div class=${`notice ${notice.isProblem ? "is-problem" : ""}`} id="notice" role=${notice.isProblem ? "alert" : "status"}>
    <span>${notice.text}</span>
    ${notice.act && html`<button type="button" class="button button-small" onClick=${act}>${notice.act}</button>`}
    <${IconButton} icon="close" size=${16} label=${t("Dismiss")} onClick=${() => (app.notice.value = null)} />
  </div>`;
}
