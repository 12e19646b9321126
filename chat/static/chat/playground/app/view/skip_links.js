// @ts-check
// The first stops of the Tab key: links to the places of the page that are gone to most.
import { html } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { runAct } from "../palette/acts_list.js";
import { focusMessageBox } from "../palette/places.js";

export function SkipLinks() {
  return html`<${SkipLink} place="messages" go=${() => runAct("messages")}>${t("Skip to the newest message")}<//>
    <${SkipLink} place="composer-text" go=${focusMessageBox}>${t("Skip to the message box")}<//>
    <${SkipLink} place="sidebar" go=${() => runAct("sidebar")}>${t("Skip to the list of chats")}<//>`;
}

/** @param {{place: string, go: () => void, children: import("../../../vendor/preact.js").ComponentChildren}} props */
function SkipLink({ place, go, children }) {
  // The address stays: it names the chat.
  const skip = (/** @type {MouseEvent} */ event) => {
    event.preventDefault();
    go();
  };
  return html`<a class="skip-link" href=${`#${place}`} onClick=${skip}>${children}</a>`;
}
