// @ts-check
import { html } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { mark, t } from "../core/i18n.js";
import { page } from "../core/page.js";
import { comparing, startComparing } from "../compare/panes.js";
import { openPalette } from "../palette/acts_list.js";
import { IconButton, Menu, MenuAct } from "./controls.js";
import { Icon } from "./icons.js";
import { panelIsOpen, sidebarIsOpen, togglePanel, toggleSidebar } from "./layers.js";
import { ModelPicker } from "./model_picker.js";
import { ThemeButton } from "./theme_button.js";

/** @import { Chat } from "../core/chat.js" */

/** @param {Chat} open */
const showCode = async (open) => (await import("../insight/view_code.js")).showCode(open);

const STATES = { connecting: mark("Connecting"), ready: mark("Connected"), lost: mark("Connection lost, trying again") };

/** @param {{open: Chat}} props */
export function Topbar({ open }) {
  const state = app.connectionState.value;
  return html`<header class="topbar">
    ${!sidebarIsOpen.value && html`<${IconButton} icon="menu" id="sidebar-toggle" label=${t("Chats")} keys="g s" expanded=${false} onClick=${() => toggleSidebar(true)} />`}
    ${comparing.value ? html`<span class="compare-title">${t("Compare")}</span>` : html`<${ModelPicker} open=${open} />`}
    <span class=${`connection ${state === "ready" ? "visually-hidden" : ""}`} id="connection" role="status" data-state=${state} title=${t(STATES[state])}><span class="connection-dot" aria-hidden="true"></span><span class="connection-text">${t(STATES[state])}</span></span>
    <nav class="topbar-acts" aria-label=${t("Page")}>
      ${open.isTemporary && html`<span class="badge">${t("Temporary")}</span>`}
      ${!sidebarIsOpen.value && html`<${IconButton} icon="plus" id="new-chat" label=${t("New chat")} keys="g n" onClick=${() => acts.newChat()} />`}
      <${IconButton} icon="columns" class="wide-only" label=${t("Compare")} pressed=${comparing.value} onClick=${() => startComparing(open)} />
      <${IconButton} icon="code" class="wide-only" label=${t("View code")} keys="g v" onClick=${() => showCode(open)} />
      <${IconButton} icon="sliders" id="panel-toggle" label=${t("Parameters")} keys="g p" expanded=${panelIsOpen.value} onClick=${() => togglePanel()} />
      <${AccountMenu} open=${open} />
    </nav>
  </header>`;
}

/** @param {{open: Chat}} props */
function AccountMenu({ open }) {
  return html`<${Menu} class="account" label=${t("Account of {name}", { name: page.user_name })} button=${page.user_name.slice(0, 1).toUpperCase()}>
    <p class="menu-name">${page.user_name}</p>
    <div class="narrow-only">
      <${MenuAct} icon="columns" onClick=${() => startComparing(open)}>${t("Compare")}<//>
      <${MenuAct} icon="code" onClick=${() => showCode(open)}>${t("View code")}<//>
    </div>
    <${MenuAct} icon="ghost" onClick=${() => acts.newChat({ isTemporary: true })}>${t("New temporary chat")}<//>
    <${MenuAct} icon="keyboard" keys="Ctrl K" onClick=${openPalette}>${t("All acts and keys")}<//>
    <${ThemeButton} />
    <hr />
    <a class="menu-act" href=${page.urls.account}><${Icon} name="user" size=${16} /><span>${t("Your account")}</span></a>
    ${page.has_console && html`<a class="menu-act" href=${page.urls.console}><${Icon} name="insight" size=${16} /><span>${t("Admin console")}</span></a>`}
    <a class="menu-act" href=${page.urls.docs}><${Icon} name="text" size=${16} /><span>${t("API documentation")}</span></a>
    <form id="sign-out" method="post" action=${page.urls.sign_out} onSubmit=${() => app.storage.signOut()}>
      <input type="hidden" name="csrfmiddlewaretoken" value=${page.csrf_token} /><button class="menu-act" type="submit"><${Icon} name="leave" size=${16} /><span>${t("Sign out")}</span></button>
    </form>
  <//>`;
}
