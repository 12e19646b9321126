// @ts-check
// Begins the page: draws it, shows the conversation that the address names, and connects.
import { html, render } from "../../vendor/preact.js";
import { resumePanes } from "./compare/kept_panes.js";
import * as acts from "./core/acts.js";
import * as app from "./core/app.js";
import { page } from "./core/page.js";
import { listenToKeys } from "./palette/keys.js";
import { keepFocus } from "./view/kept_focus.js";
import { Layout } from "./view/layout.js";

const IN_ADDRESS = /^\/c\/([A-Za-z0-9-]{1,64})$/;

/** Show what the address names, or have it behind the chats that are compared. @param {boolean} [isBehind] */
async function showAddress(isBehind = false) {
  const id = IN_ADDRESS.exec(location.pathname)?.[1];
  if (!id || id === app.chat.value.id) return;
  const isThere = await (isBehind ? acts.openBehind(id) : acts.openChat(id));
  if (!isThere) globalThis.history.replaceState(null, "", "/");
}

app.drafts.watch(app.chat.value, page.draft);
const isComparing = resumePanes();
listenToKeys();
keepFocus();
render(html`<${Layout} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
app.connection.open();
app.outbox.flush();
acts.saveSettings();
app.chatList.refresh();
showAddress(isComparing);
// Saved replies answer in chats that are not shown, too.
if (app.readState("auto_reply")) import("./tools/replies.js").catch(() => {});

addEventListener("popstate", () => (IN_ADDRESS.test(location.pathname) ? showAddress() : acts.newChat()));
// A page that the browser kept from before a sign-out is not shown again.
addEventListener("pageshow", (event) => event.persisted && location.reload());
// Another device may have gone on meanwhile.
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !app.chat.value.isStored) return;
  app.reread(app.chat.value);
  app.chatList.refreshSoon();
});
