// @ts-check
// Which of the compared answers the reader found best; the last votes are kept with the page's state.
import { signal } from "../../../vendor/preact.js";
import { textOf } from "../core/answers.js";
import { readState, storage, writeState } from "../core/app.js";
import { isBlind, lastAnswer, panes, setBlind } from "./panes.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatSettings } from "../core/types.js" */
/** @import { Pane } from "./panes.js" */

const MAX_VOTES = 200;
const MAX_STATE_CHARS = 24_000; // the page's whole state may have 64 KiB
const MAX_LABEL = 80;
const MAX_PROMPT = 60;
export const MAX_NOTE = 160;

/** @typedef {{at: string, blind: boolean, prompt: string, options: string[], best: number, note: string}} Vote `best`: which of `options` */

/** The latest last. @type {Signal<Vote[]>} */
export const votes = signal(Array.isArray(readState("votes")) ? readState("votes") : []);
/** The answers that were voted on last, so that one comparison counts once, also after a reload. */
const votedOn = signal(storage.read("tab", "voted-on") ?? "");

/** What the shown answers are, in one text; wherever their panes stand. */
const roundNow = () => panes.value.map((pane) => lastAnswer(pane)?.id ?? "").sort().join(" ");

/** Whether two or more answers have ended that no vote was about. */
export function canVote() {
  const answers = panes.value.flatMap((pane) => lastAnswer(pane) ?? []);
  const ended = answers.filter(({ facts }) => facts.state === "ended");
  return ended.length > 1 && !answers.some((turn) => turn.isRunning) && votedOn.value !== roundNow();
}

/** Keep a vote for a pane; names that were hidden are shown again. @param {Pane} best @param {string} note */
export function vote(best, note) {
  const answered = panes.value.filter(lastAnswer);
  const question = best.chat.path.value.findLast(({ facts }) => facts.role === "user");
  /** @type {Vote} */
  const cast = {
    at: new Date().toISOString(),
    blind: isBlind.value,
    prompt: textOf(question?.facts.content).slice(0, MAX_PROMPT),
    options: answered.map((pane) => labelOf(lastAnswer(pane)?.facts.model ?? "", pane.chat.settings.value)),
    best: answered.indexOf(best),
    note: note.trim().slice(0, MAX_NOTE),
  };
  keep([...votes.value, cast]);
  votedOn.value = roundNow();
  storage.write("tab", "voted-on", votedOn.value);
  setBlind(false);
}

/** @param {Vote[]} list */
export function keep(list) {
  let kept = list.slice(-MAX_VOTES);
  while (JSON.stringify(kept).length > MAX_STATE_CHARS) kept = kept.slice(1);
  votes.value = kept;
  writeState("votes", kept);
}

/** A model with what was asked of it besides: two panes may have the same one. @param {string} model @param {ChatSettings} settings */
function labelOf(model, { system, parameters }) {
  const set = Object.entries(parameters).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  return [model, ...set, ...(system ? [`system ${JSON.stringify(system)}`] : [])].join(", ").slice(0, MAX_LABEL);
}

/** How often each option won, the best first. @returns {{label: string, won: number, of: number}[]} */
export function standings() {
  /** @type {Map<string, {label: string, won: number, of: number}>} */
  const byLabel = new Map();
  for (const { options, best } of votes.value) {
    for (const label of new Set(options)) {
      const row = byLabel.get(label) ?? { label, won: 0, of: 0 };
      byLabel.set(label, { label, won: row.won + (options[best] === label ? 1 : 0), of: row.of + 1 });
    }
  }
  return [...byLabel.values()].sort((one, other) => other.won / other.of - one.won / one.of || other.of - one.of);
}

/** All votes as CSV text. */
export function csv() {
  const rows = votes.value.map(({ at, blind, best, options, prompt, note }) => [at, blind ? "yes" : "no", options[best], options.filter((_, other) => other !== best).join(" | "), prompt, note]);
  return [["time", "blind", "best", "others", "prompt", "note"], ...rows].map((row) => row.map(cell).join(",")).join("\r\n");
}

/** A cell that no spreadsheet takes for a formula. @param {string} text */
const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
