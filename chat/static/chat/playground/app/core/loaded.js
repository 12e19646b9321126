// @ts-check
// What can be asked of a model that is loaded, and of no other: nothing is loaded to count.
import { signal } from "../../../vendor/preact.js";
import * as app from "./app.js";
import { useAnswer } from "./use_answer.js";

const QUIET_MS = 1000;

/** Models that have answered since the page was drawn, whatever their state was then. @type {import("../../../vendor/preact.js").Signal<Set<string>>} */
const answered = signal(new Set());
app.endListeners.add((_, { facts }) => {
  if (facts.state === "ended" && facts.model && !answered.value.has(facts.model)) answered.value = new Set([...answered.value, facts.model]);
});

/** @param {string} model */
export const isLoaded = (model) => app.modelOf(model)?.state === "ready" || answered.value.has(model);

/** The number of tokens of a text, null while it is not known. @param {string} model @param {string} text @returns {number | null} */
export function useTokenCount(model, text) {
  return useAnswer("count", text.trim() && isLoaded(model) ? { model, text } : null, QUIET_MS)?.num_tokens ?? null;
}
