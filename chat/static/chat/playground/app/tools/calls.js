// @ts-check
// The function calls of an answer, each a card, and the results that the reader gives. Neither the page nor the server runs anything.
import { html, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { callId } from "../core/answers.js";
import { number, plural, t } from "../core/i18n.js";
import { isObject, parse } from "../core/json.js";
import { CopyButton, IconButton, Menu, MenuAct } from "../view/controls.js";
import { editKeys } from "../view/edit_form.js";
import { Icon } from "../view/icons.js";
import { definitionFor, resultOf } from "./call_of.js";
import { pretty } from "./pretty.js";
import { remarksOn } from "./remarks.js";
import { countAnew, fill, isAutomatic, MAX_ROUNDS, repliesTo, replyFor, rounds, saveReply, setAutomatic } from "./replies.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */
/** @import { Call } from "../core/types.js" */
/** @import { Remark } from "./remarks.js" */

/** @param {{open: Chat, turn: Turn, calls: Call[], isLast: boolean}} props */
export function Calls({ open, turn, calls, isLast }) {
  const isOpen = isLast && !turn.isRunning;
  return html`<div class="calls" role="group" aria-label=${plural(calls.length, "One function call", "{n} function calls")}>
    ${calls.map((call, at) => html`<${CallCard} key=${callId(call, at)} open=${open} turn=${turn} call=${call} at=${at} isOpen=${isOpen} />`)}
    ${isOpen && html`<${SendResults} open=${open} turn=${turn} calls=${calls} />`}
  </div>`;
}

/** @param {{open: Chat, turn: Turn, call: Call, at: number, isOpen: boolean}} props */
function CallCard({ open, turn, call, at, isOpen }) {
  const [isEditing, setEditing] = useState(false);
  const isOver = !isOpen && !turn.isRunning;
  const text = pretty(call.arguments);
  const head = html`<${Icon} name="tool" size=${16} /><code class="call-name">${call.name}</code>${call.id && html`<code class="call-id" title=${t("Id of the call")}>${call.id}</code>`}`;
  if (isOver) {
    const outcome = resultOf(open, turn, callId(call, at)) ? t("answered") : t("not answered");
    return html`<details class="call is-over"><summary class="call-head">${head}<span class="call-line">${call.arguments}</span><span class="call-outcome">${outcome}</span></summary>
      <pre class="call-arguments" tabindex="0">${text}</pre><${CallMarks} turn=${turn} call=${call} /></details>`;
  }
  return html`<section class="call" aria-label=${t("Call of {name}", { name: call.name })}>
    <header class="call-head">${head}<span class="call-acts">
      ${isOpen && !isEditing && html`<${IconButton} icon="edit" size=${16} label=${t("Edit the arguments")} disabled=${open.isBusy.value} onClick=${() => setEditing(true)} />`}
      <${CopyButton} text=${() => text} label=${t("Copy the arguments")} /></span></header>
    ${isEditing
      ? html`<${ArgumentsForm} open=${open} turn=${turn} at=${at} text=${text} onLeave=${() => setEditing(false)} />`
      : html`<pre class="call-arguments" tabindex="0">${text || (turn.isRunning ? "…" : "{}")}</pre>`}
    ${!turn.isRunning && !isEditing && html`<${CallMarks} turn=${turn} call=${call} />`}
    ${isOpen && html`<${ResultBox} open=${open} call=${call} name=${callId(call, at)} />`}
  </section>`;
}

/** What is wrong with the arguments of a call. @param {{turn: Turn, call: Call}} props */
function CallMarks({ turn, call }) {
  const { problems, note } = marksOf(turn, call);
  if (problems.length === 0) return note ? html`<p class="call-note">${note}</p>` : null;
  return html`<ul class="call-problems" aria-label=${t("Problems of the arguments")}>${problems.map(({ path, message }) => html`<li key=${path + message}>${path && html`<code>${path}</code>`} ${message}</li>`)}</ul>`;
}

/** @param {Turn} turn @param {Call} call @returns {{problems: Remark[], note?: string}} */
function marksOf(turn, call) {
  const offered = turn.facts.parameters?.fields?.tools;
  const definition = definitionFor(turn, call.name);
  const parsed = parse(call.arguments || "{}");
  if (!parsed.isWhole) return { problems: [{ path: "", message: t("The arguments are not JSON: {problem}", { problem: parsed.problem }) }] };
  if (!definition) return { problems: offered ? [{ path: "", message: t("No tool of this name was offered.") }] : [] };
  const { remarks, unknown } = remarksOn(parsed.value, definition.parameters ?? { type: "object" });
  const note = unknown.length ? t("Not checked here: {keywords}", { keywords: unknown.join(", ") }) : "";
  return { problems: remarks, note };
}

/** The arguments of a call, to be changed: another answer, beside this one. @param {{open: Chat, turn: Turn, at: number, text: string, onLeave: () => void}} props */
function ArgumentsForm({ open, turn, at, text, onLeave }) {
  const [edited, setEdited] = useState(text);
  const [problem, setProblem] = useState("");
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useLayoutEffect(() => area.current?.focus(), []);
  const save = () => {
    const parsed = parse(edited);
    if (!isObject(parsed.value)) return setProblem(parsed.isWhole ? t("Arguments are one JSON object.") : t("The arguments are not JSON: {problem}", { problem: parsed.problem }));
    onLeave();
    if (edited !== text) acts.editCall(open, turn, at, JSON.stringify(parsed.value));
  };
  return html`<form class="call-form" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), save())}>
    <textarea ref=${area} class="input input-code" aria-label=${t("Arguments as JSON")} rows=${Math.min(14, edited.split("\n").length + 1)} spellcheck=${false} value=${edited}
      onInput=${(/** @type {any} */ event) => setEdited(event.target.value)} onKeyDown=${editKeys(save, onLeave)}></textarea>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <div class="edit-acts"><button type="button" class="button button-small" onClick=${onLeave}>${t("Cancel")}</button>
      <button type="submit" class="button button-small button-primary">${t("Save as a new version")}</button></div>
  </form>`;
}

/** @param {Chat} open @param {string} name @param {string} text */
function write(open, name, text) {
  const { results = {} } = open.draft.value;
  open.draft.value = { ...open.draft.value, results: { ...results, [name]: text } };
}

/** Where the result of one call is written. @param {{open: Chat, call: Call, name: string}} props */
function ResultBox({ open, call, name }) {
  const [problem, setProblem] = useState("");
  const text = open.draft.value.results?.[name] ?? "";
  const reply = replyFor(call.name);
  const put = (/** @type {object | string} */ result) => {
    setProblem("");
    write(open, name, typeof result === "string" ? result : JSON.stringify(result));
  };
  const putReply = () => {
    const { text: filled, missing } = fill(reply ?? "", call.arguments);
    if (missing.length) setProblem(t("The saved reply for {name} needs {missing}, which the call does not have.", { name: call.name, missing: missing.join(", ") }));
    else put(filled);
  };
  const kind = !text ? "" : acts.partsIn(text) ? t("content parts") : parse(text).isWhole ? t("JSON") : t("text");
  return html`<div class="call-result">
    <div class="call-result-head"><label for=${`result-${name}`}>${t("Result")}</label>${kind && html`<span class="call-kind">${kind}</span>`}
      <span class="call-acts">
        ${reply !== undefined && html`<button type="button" class="button button-small" onClick=${putReply}>${t("Use saved reply")}</button>`}
        <button type="button" class="button button-small button-quiet" onClick=${() => put({ error: t("The tool failed: ") })}>${t("Error")}</button>
        <button type="button" class="button button-small button-quiet" onClick=${() => put({ skipped: t("The tool was not run; go on without its result.") })}>${t("Skip")}</button>
        <${Menu} label=${t("More results")}>
          <${MenuAct} icon="clock" onClick=${() => put({ status: "pending", message: t("The tool is still running; its result comes later.") })}>${t("Still running")}<//>
          <${MenuAct} icon="pin" disabled=${!text} onClick=${() => saveReply(call.name, text)}>${t("Save as reply for {name}", { name: call.name })}<//>
          <${MenuAct} icon="trash" disabled=${reply === undefined} onClick=${() => saveReply(call.name, "")}>${t("Forget the saved reply")}<//>
        <//>
      </span></div>
    <textarea class="input input-code" id=${`result-${name}`} rows=${Math.min(12, Math.max(2, text.split("\n").length))} spellcheck=${false} placeholder=${t("What the tool returns: text or JSON")} value=${text}
      onInput=${(/** @type {any} */ event) => (setProblem(""), write(open, name, event.target.value))}></textarea>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
  </div>`;
}

/** @param {{open: Chat, turn: Turn, calls: Call[]}} props */
function SendResults({ open, turn, calls }) {
  const unsent = open.draft.value.results ?? {};
  const results = calls.map((call, at) => ({ id: callId(call, at), text: unsent[callId(call, at)] ?? "" }));
  const numMissing = results.filter(({ text }) => !text).length;
  const hasReplies = calls.some(({ name }) => replyFor(name) !== undefined);
  const isReady = numMissing === 0 && !open.isBusy.value;
  const send = () => {
    if (!isReady) return;
    countAnew(open);
    acts.answerCalls(open, turn, results);
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  };
  return html`<footer class="calls-foot" onKeyDown=${key}>
    <button type="button" class="button button-primary button-small" id="send-results" aria-disabled=${!isReady} onClick=${send}>${plural(calls.length, "Send result", "Send {n} results")}</button>
    <span class="call-note">${numMissing ? plural(numMissing, "One call has no result yet: type one, or skip it. Models expect a result for each call.", "{n} calls have no result yet: type them, or skip some. Models expect a result for each call.") : t("The results go in the order of the calls, and the model goes on.")}</span>
    ${(hasReplies || isAutomatic.value) && html`<${AutomaticSwitch} open=${open} calls=${calls} />`}
  </footer>`;
}

/** @param {{open: Chat, calls: Call[]}} props */
function AutomaticSwitch({ open, calls }) {
  const num = rounds.value[open.id] ?? 0;
  const { problem } = repliesTo(calls);
  const isStopped = isAutomatic.value && num >= MAX_ROUNDS;
  return html`<label class="switch-line"><input type="checkbox" role="switch" checked=${isAutomatic.value} onChange=${(/** @type {any} */ event) => setAutomatic(event.target.checked)} />
    <span>${t("Answer by saved replies automatically")}</span>
    <span class="call-note" id="auto-count">${isStopped ? t("Stopped after {n} of {max}: send these yourself to go on.", { n: number(num), max: MAX_ROUNDS }) : isAutomatic.value && problem ? problem : t("{n} of {max} in a row", { n: number(num), max: MAX_ROUNDS })}</span></label>`;
}
