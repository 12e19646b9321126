// The page: joins composer, transcript, parameters and the socket. A run's deltas are painted once per animation frame.
import { Announcer } from "./announcer.js";
import { Connection } from "./connection.js";
import { Settings } from "./settings.js";
import { MessageView } from "./transcript.js";

const $ = (id) => document.getElementById(id);
const STORE = "lightcone.chat";
const STATES = { connecting: "Connecting", ready: "Connected", lost: "Connection lost, trying again" };
const SLOW_PAINT_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 250 : 0;

const settings = new Settings();
const announcer = new Announcer($("announcer"));
const conversation = $("conversation");
const text = $("composer-text");
let messages = [];
let run = null;
let followsEnd = true;

const connection = new Connection(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/playground`, (state) => {
  $("connection").dataset.state = state;
  $("connection").querySelector(".connection-text").textContent = STATES[state];
});

const acts = {
  edit(message) {
    if (run) return;
    text.value = message.content;
    cut(messages.indexOf(message));
    resize();
    text.focus();
  },
  regenerate(message) {
    if (run) return;
    cut(messages.indexOf(message));
    answer();
  },
};

function save() {
  try {
    sessionStorage.setItem(STORE, JSON.stringify(messages.map(({ view, ...rest }) => rest)));
  } catch {
    /* private mode or a full store: the chat lasts as long as the page */
  }
}

function add(message) {
  message.time ??= new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  message.view = new MessageView(message, acts);
  messages.push(message);
  $("messages").append(message.view.node);
  $("welcome").hidden = true;
  scrollToEnd();
  return message;
}

function cut(index) {
  for (const message of messages.splice(index)) message.view.node.remove();
  $("welcome").hidden = messages.length > 0;
  save();
}

function scrollToEnd() {
  if (followsEnd) conversation.scrollTop = conversation.scrollHeight;
}

function showRunning(isRunning) {
  $("stop").hidden = !isRunning;
  $("send").hidden = isRunning;
}

function answer() {
  const history = messages.filter((m) => m.content).map(({ role, content }) => ({ role, content }));
  const system = settings.systemPrompt ? [{ role: "system", content: settings.systemPrompt }] : [];
  const request = { model: $("model").value, messages: [...system, ...history], ...settings.parameters };
  followsEnd = true;
  const message = add({ role: "assistant", content: "" });
  run = { id: crypto.randomUUID?.() ?? String(performance.now()), message, frame: 0 };
  if (!connection.isReady) {
    end(run, { error: { message: "There is no connection to the server yet. Try again in a moment.", code: "connection_lost" } });
    return;
  }
  showRunning(true);
  const own = run;
  connection.start(own.id, request, (news) => handle(own, news));
}

function handle(own, news) {
  if (news.type === "delta") {
    own.message.view.append(news);
    announcer.feed(news.text);
    own.frame ||= SLOW_PAINT_MS ? setTimeout(() => paint(own), SLOW_PAINT_MS) : requestAnimationFrame(() => paint(own));
  } else if (news.type === "completed") {
    end(own, { counters: counters(news) });
    announcer.finish(`Finished, ${news.usage.completion_tokens} tokens.`);
  } else if (news.type === "error") {
    end(own, { error: news.error });
    settings.focus(news.error.param);
  }
}

function paint(own) {
  own.frame = 0;
  if (run !== own) return;
  own.message.view.paint();
  scrollToEnd();
}

function end(own, result) {
  Object.assign(own.message, result);
  own.message.view.finish();
  if (run === own) run = null;
  showRunning(false);
  scrollToEnd();
  save();
}

function counters({ usage, timings, finish_reason: reason, outcome }) {
  const thought = usage.reasoning_tokens ? `, ${usage.reasoning_tokens.toLocaleString()} of them thinking` : "";
  const tokens = `${usage.completion_tokens.toLocaleString()} tokens${thought}`;
  const prompt = `${usage.prompt_tokens.toLocaleString()} in the prompt${usage.cached_tokens ? `, ${usage.cached_tokens.toLocaleString()} cached` : ""}`;
  const list = [tokens, prompt];
  if (timings.first_token_s != null) list.push(`first after ${timings.first_token_s.toFixed(2)} s`);
  if (timings.tokens_per_s) list.push(`${timings.tokens_per_s.toFixed(1)} tokens/s`);
  if (outcome === "stopped") list.push("stopped");
  else if (reason === "length") list.push("cut at the token limit");
  return list;
}

function resize() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = text.value.trim();
  if (!content || run) return;
  const wrong = settings.wrongField;
  if (wrong) {
    openSettings(true);
    wrong.reportValidity();
    return;
  }
  text.value = "";
  resize();
  add({ role: "user", content });
  answer();
});

text.addEventListener("input", resize);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  }
});

$("stop").addEventListener("click", () => run && connection.stop(run.id));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if ($("settings").classList.contains("is-open")) openSettings(false);
  else if (run) connection.stop(run.id);
});

$("new-chat").addEventListener("click", () => {
  if (run) connection.stop(run.id);
  run = null;
  showRunning(false);
  cut(0);
  text.focus();
});

for (const suggestion of document.querySelectorAll(".suggestion")) {
  suggestion.addEventListener("click", () => {
    text.value = suggestion.textContent;
    $("composer").requestSubmit();
  });
}

conversation.addEventListener("scroll", () => {
  followsEnd = conversation.scrollHeight - conversation.scrollTop - conversation.clientHeight < 40;
  $("jump").hidden = followsEnd;
});
$("jump").addEventListener("click", () => {
  followsEnd = true;
  scrollToEnd();
});

const narrow = matchMedia("(max-width: 900px)");
function openSettings(isOpen) {
  const isSheet = narrow.matches;
  $("settings").classList.toggle("is-open", isSheet && isOpen);
  document.querySelector(".workspace").classList.toggle("is-settings-closed", !isSheet && !isOpen);
  $("settings-toggle").setAttribute("aria-expanded", String(isOpen));
  if (isSheet && isOpen) $("system").focus();
}
$("settings-toggle").setAttribute("aria-expanded", String(!narrow.matches));
narrow.addEventListener("change", () => openSettings(!narrow.matches));
$("settings-toggle").addEventListener("click", () => openSettings($("settings-toggle").getAttribute("aria-expanded") !== "true"));
$("settings-close").addEventListener("click", () => {
  openSettings(false);
  $("settings-toggle").focus();
});

const THEMES = ["system", "light", "dark"];
function showTheme() {
  const label = `Theme: ${window.lightconeTheme.current()}`;
  $("theme").setAttribute("aria-label", label);
  $("theme").title = label;
}
$("theme").addEventListener("click", () => {
  window.lightconeTheme.set(THEMES[(THEMES.indexOf(window.lightconeTheme.current()) + 1) % THEMES.length]);
  showTheme();
});
showTheme();

try {
  for (const message of JSON.parse(sessionStorage.getItem(STORE)) || []) add(message);
} catch {
  sessionStorage.removeItem(STORE);
}
