// The page. Its state is the chats, what is edited, and the connection; whatever changes one of them calls `show`, which draws the page from it.
import { newAnswer } from "./answer.js";
import { Announcer } from "./announcer.js";
import { Chats } from "./chats.js";
import { ChatsMenu } from "./chats_menu.js";
import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { setUpMenus } from "./menus.js";
import { Notice } from "./notice.js";
import { Runs } from "./runs.js";
import { Scrolling } from "./scrolling.js";
import { Settings } from "./settings.js";
import { SettingsPanel } from "./settings_panel.js";
import { Store } from "./store.js";
import { setUpThemeButton } from "./theme_button.js";
import { Transcript } from "./transcript.js";

const $ = (id) => document.getElementById(id);
const page = JSON.parse($("page-data").textContent);
const STATES = { connecting: "Connecting", ready: "Connected", lost: "Connection lost, trying again" };
const PAINT_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 250 : 0;

const store = new Store(page.user, () => location.reload());
const chats = new Chats(store, (isFull) => ($("storage-full").hidden = !isFull));
const settings = new Settings(store, page.fields, () => page.models[$("model").value] ?? {});
const panel = new SettingsPanel();
const announcer = new Announcer($("announcer"));
const notice = new Notice($("notice"));
const composer = new Composer(store, ask);
const scrolling = new Scrolling($("conversation"), $("messages"), $("jump"));
const chatsMenu = new ChatsMenu($("chats"), { onOpen: openChat, onForget: () => chats.forgetEarlier() });
const connection = new Connection(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/playground`, {
  onState(state) {
    $("connection").dataset.state = state;
    $("connection").querySelector(".connection-text").textContent = STATES[state];
    isAway = state === "lost" || (isAway && state !== "ready");
    if (state === "ready") runs.connected();
    show();
  },
  onMessage: (message) => runs.receive(message),
});
const runs = new Runs(connection, page.max_bytes, { onText, onEnd });
const transcript = new Transcript($("messages"), { beginEdit, cancelEdit, sendEdit, regenerate, pickVersion, pickChoice });

let editing = null;
let isAway = false; // the connection was there, and is not
const painting = new Set();

// The page from the state.

function show() {
  const chat = chats.current;
  transcript.show(chat.path, viewState());
  $("welcome").hidden = !chat.isEmpty;
  composer.showBusy(isBusy());
  chatsMenu.show(chats.earlier);
}

function viewState() {
  const chat = chats.current;
  return { isBusy: isBusy(), editing, isAway, versionsOf: (message) => chat.versions(message) };
}

function isBusy() {
  return chats.current.unfinished.length > 0;
}

/** Draw what is said of an answer, once for each frame. */
function paintSoon(message) {
  if (painting.has(message)) return;
  const paint = () => {
    painting.delete(message);
    transcript.update(message, viewState());
  };
  painting.add(message);
  if (PAINT_MS) setTimeout(paint, PAINT_MS);
  else requestAnimationFrame(paint);
}

// What the runs tell.

function onText(chat, message, news) {
  chats.saveSoon(chat);
  if (chat !== chats.current) return;
  if (news.choice === message.shown) announcer.feed(news.text);
  paintSoon(message);
}

function onEnd(chat, message) {
  chats.saveSoon(chat);
  chats.flush();
  if (chat !== chats.current) return;
  show();
  if (message.end) announcer.finish(`Finished, ${message.end.usage.completion_tokens} tokens.`);
  else settings.focus(message.error.param);
}

// What the reader does.

/** Send a new message. False where it cannot be sent now. */
function ask(content) {
  if (isBusy() || !areSettingsRight()) return false;
  const chat = chats.current;
  notice.hide();
  answer(chat, chat.add(chat.last, { role: "user", content }));
  return true;
}

/** Let the model answer this message. */
function answer(chat, question) {
  const system = settings.systemPrompt ? [{ role: "system", content: settings.systemPrompt }] : [];
  const request = { model: $("model").value, messages: [...system, ...chat.historyTo(question)], ...settings.parameters };
  const message = chat.add(question, newAnswer(request.model));
  chats.save(chat);
  chats.show(chat);
  scrolling.follows = true;
  runs.start(chat, message, request);
  show();
  scrolling.toEnd();
}

function areSettingsRight() {
  const wrong = settings.wrongField;
  if (!wrong) return true;
  panel.open();
  wrong.reportValidity();
  return false;
}

function beginEdit(message) {
  editing = message.id;
  show();
}

function cancelEdit() {
  const message = chats.current.find(editing);
  editing = null;
  show();
  if (message) transcript.focus(message, "Edit");
}

function sendEdit(message, content) {
  if (isBusy() || !areSettingsRight()) return;
  const chat = chats.current;
  const numAfter = chat.numAfter(message);
  editing = null;
  answer(chat, chat.add(chat.find(message.parent), { role: "user", content }));
  offerReturn(chat, message, numAfter);
  focusConversation();
}

function regenerate(message) {
  if (isBusy() || !areSettingsRight()) return;
  const chat = chats.current;
  const numAfter = chat.numAfter(message);
  if (!chat.isWorthKeeping(message)) chat.drop(message);
  answer(chat, chat.find(message.parent));
  if (chat.find(message.id)) offerReturn(chat, message, numAfter);
  else notice.hide();
  focusConversation();
}

/** Where a pressed button has gone; no keyboard opens on a phone for it. */
function focusConversation() {
  $("conversation").focus({ preventScroll: true });
}

/** Say that what was replaced is still there, and how to have it back. */
function offerReturn(chat, message, numAfter) {
  const after = numAfter === 0 ? "" : numAfter === 1 ? " and the message after it" : ` and the ${numAfter} messages after it`;
  notice.show(`The earlier version${after} ${after ? "are" : "is"} kept.`, "Undo", () => {
    openChat(chat);
    pickVersion(message);
  });
}

function pickVersion(message, label) {
  chats.current.pick(message);
  chats.save(chats.current);
  notice.hide();
  show();
  if (label) transcript.focus(message, label);
}

function pickChoice(message, number) {
  message.shown = number;
  chats.save(chats.current);
  show();
}

function newChat() {
  const before = chats.current;
  editing = null;
  if (!before.isEmpty) {
    chats.begin();
    notice.show("The chat before is kept.", "Go back to it", () => openChat(before));
  }
  show();
  composer.focus();
}

function openChat(chat) {
  editing = null;
  chats.show(chat);
  notice.hide();
  show();
  scrolling.toEnd();
  focusConversation();
}

function stop() {
  for (const message of chats.current.unfinished) runs.stop(message.id);
}

// The page's own controls.

$("new-chat").addEventListener("click", newChat);
$("stop").addEventListener("click", stop);
for (const suggestion of document.querySelectorAll(".suggestion")) suggestion.addEventListener("click", () => ask(suggestion.textContent));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (panel.isSheetOpen) panel.close();
  else if (editing) cancelEdit();
  else stop();
});

const keptModel = store.read("model");
if (keptModel in page.models) $("model").value = keptModel;
settings.show();
$("model").addEventListener("change", () => {
  store.write("model", $("model").value);
  settings.show();
});

// What is being said is kept before the page goes; a page that the browser kept from before a sign-out is not shown again.
addEventListener("pagehide", () => chats.flush());
document.addEventListener("visibilitychange", () => document.hidden && chats.flush());
addEventListener("pageshow", (event) => event.persisted && location.reload());
$("sign-out").addEventListener("submit", () => store.signOut());

setUpMenus();
setUpThemeButton($("theme"));
for (const chat of chats.all) for (const message of chat.unfinished) runs.attach(chat, message);
connection.open();
scrolling.toEnd();
