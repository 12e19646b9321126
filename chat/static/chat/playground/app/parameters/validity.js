// @ts-check
// What is typed and cannot be sent. It is kept apart from the chat's settings, which have only what may be sent.
import { signal } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { withField } from "../core/requests.js";
import { problemFinders } from "./focus.js";
import { form } from "./form_facts.js";
import { check } from "./value_problems.js";
import { readText } from "./values.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { Chat } from "../core/chat.js" */
/** @import { FieldProblem } from "./focus.js" */
/** @import { FieldFacts } from "./form_facts.js" */

/** @typedef {{text: string, message: string}} Wrong */

/** @type {WeakMap<Chat, Signal<Record<string, Wrong>>>} */
const kept = new WeakMap();

/** Wrong texts of a chat's fields, by their names; under "json" that of the JSON tab. @param {Chat} open @returns {Signal<Record<string, Wrong>>} */
export function wrongFields(open) {
  const found = kept.get(open) ?? signal({});
  kept.set(open, found);
  return found;
}

/** @param {Chat} open @param {string} name @param {Wrong} [wrong] none: it is right */
export function markWrong(open, name, wrong) {
  const all = wrongFields(open);
  const { [name]: before, ...others } = all.value;
  if (wrong) all.value = { ...others, [name]: wrong };
  else if (before) all.value = others;
}

/** Take over what was typed into a field, or keep it as wrong. @param {Chat} open @param {string} name @param {string} text @param {FieldFacts} facts */
export function typeField(open, name, text, facts) {
  const { value, problem } = readText(text, facts);
  if (problem) markWrong(open, name, { text, message: problem });
  else setField(open, name, value);
}

/** Set a field, or leave it out of the request if the value is undefined. @param {Chat} open @param {string} name @param {any} value */
export function setField(open, name, value) {
  markWrong(open, name);
  acts.changeSettings(open, { parameters: withField(open.settings.value.parameters, name, value) });
}

/** The problem of a field: of what is typed, else of what is set. @param {Chat} open @param {string} name @param {FieldFacts} facts */
export function problemOf(open, name, facts) {
  const wrong = wrongFields(open).value[name];
  if (wrong) return wrong.message;
  const value = open.settings.value.parameters[name];
  return value === undefined || value === null ? "" : (check(value, facts.schema, facts.title)[0]?.message ?? "");
}

/** What holds the next message back, null if nothing does. @param {Chat} open @returns {FieldProblem | null} */
function firstProblem(open) {
  const [first] = Object.entries(wrongFields(open).value);
  if (first) return { param: first[0], message: first[1].message };
  const fields = form.value?.fields ?? {};
  for (const param of Object.keys(open.settings.value.parameters)) {
    const message = fields[param] ? problemOf(open, param, fields[param]) : "";
    if (message) return { param, message };
  }
  return null;
}

problemFinders.add(firstProblem);
