// @ts-check
// Saved replies: what is answered to calls of a tool, by its name. `{{city}}` in one stands for an argument of the call. Nothing is executed.
import { signal } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { callId } from "../core/answers.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { parse } from "../core/json.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */
/** @import { Call } from "../core/types.js" */

export const MAX_ROUNDS = 8;
const PLACE = /\{\{\s*([\w$.[\]-]+)\s*\}\}/g;
const WHOLE_PLACE = /^\{\{\s*([\w$.[\]-]+)\s*\}\}$/;

/** By the names of tools. @type {import("../../../vendor/preact.js").Signal<Record<string, string>>} */
export const replies = signal(app.readState("replies") ?? {});
/** Whether calls are answered without asking. */
export const isAutomatic = signal(app.readState("auto_reply") === true);
/** How many calls in a row were answered so, by the ids of chats. @type {import("../../../vendor/preact.js").Signal<Record<string, number>>} */
export const rounds = signal({});

/** @param {string} name @returns {string | undefined} */
export const replyFor = (name) => (Object.hasOwn(replies.value, name) ? replies.value[name] : undefined);

/** Keep a reply for a tool; an empty one is removed. @param {string} name @param {string} text */
export function saveReply(name, text) {
  const others = Object.fromEntries(Object.entries(replies.value).filter(([other]) => other !== name));
  replies.value = text ? { ...others, [name]: text } : others;
  app.writeState("replies", replies.value);
}

/** @param {boolean} isOn */
export function setAutomatic(isOn) {
  isAutomatic.value = isOn;
  rounds.value = {};
  app.writeState("auto_reply", isOn);
}

/** Fill a reply from the arguments of a call. `missing`: names that the arguments do not have. @param {string} reply @param {string} args JSON */
export function fill(reply, args) {
  const given = parse(args || "{}").value ?? {};
  /** @type {Set<string>} */
  const missing = new Set();
  const look = (/** @type {string} */ path) => {
    const found = lookUp(given, path);
    if (found === undefined) missing.add(path);
    return found;
  };
  const inText = (/** @type {string} */ text) => text.replace(PLACE, (whole, path) => asText(look(path) ?? whole));
  const json = parse(reply);
  const isStructure = json.isWhole && json.value !== null && typeof json.value === "object";
  const text = isStructure ? JSON.stringify(filled(json.value, look, inText)) : inText(reply);
  return { text, missing: [...missing] };
}

/** @param {any} value @param {(path: string) => any} look @param {(text: string) => string} inText @returns {any} */
function filled(value, look, inText) {
  if (Array.isArray(value)) return value.map((item) => filled(item, look, inText));
  if (value !== null && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, filled(item, look, inText)]));
  if (typeof value !== "string") return value;
  // A text that is one place alone stands for the argument itself, a number for a number.
  const place = WHOLE_PLACE.exec(value);
  return place ? (look(place[1]) ?? value) : inText(value);
}

/** @param {any} value */
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** @param {any} value @param {string} path such as `place.city` or `cities.0` */
function lookUp(value, path) {
  for (const name of path.replace(/\[(\d+)\]/g, ".$1").split(".")) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return value;
}

/** The results of calls by saved replies, or why there are none. @param {Call[]} calls @returns {{results: {id: string, text: string}[], problem: string}} */
export function repliesTo(calls) {
  const results = [];
  for (const [at, call] of calls.entries()) {
    const reply = replyFor(call.name);
    if (reply === undefined) return { results: [], problem: t("There is no saved reply for {name}.", { name: call.name }) };
    const { text, missing } = fill(reply, call.arguments);
    if (missing.length) return { results: [], problem: t("The saved reply for {name} needs {missing}, which the call does not have.", { name: call.name, missing: missing.join(", ") }) };
    results.push({ id: callId(call, at), text });
  }
  return { results, problem: "" };
}

/** The reader begins anew: the count of automatic answers does too. @param {Chat} open */
export function countAnew(open) {
  const { [open.id]: _, ...others } = rounds.value;
  rounds.value = others;
}

app.endListeners.add((open, turn) => {
  if (open.find(turn.facts.parent)?.facts.role === "user") countAnew(open);
  answerBySavedReplies(open, turn);
});
// Answers may have ended before this was loaded.
for (const open of app.openChats.values()) answerBySavedReplies(open, open.path.value.at(-1));

/** @param {Chat} open @param {Turn} [turn] */
function answerBySavedReplies(open, turn) {
  // Of several tabs that read the run, the one that asked goes on.
  if (!isAutomatic.value || !turn || !acts.askedHere.has(turn) || turn.facts.state !== "ended" || turn.facts.outcome !== "finished") return;
  const calls = turn.choices[open.shownChoice(turn)]?.calls ?? [];
  const num = rounds.value[open.id] ?? 0;
  if (calls.length === 0 || num >= MAX_ROUNDS || open.path.value.at(-1) !== turn || open.isBusy.value) return;
  const { results } = repliesTo(calls);
  if (results.length === 0) return;
  rounds.value = { ...rounds.value, [open.id]: num + 1 };
  acts.answerCalls(open, turn, results);
}
