// @ts-check
// What can be asked of a model that is loaded, and of no other: nothing is loaded to count.
import { signal, useEffect } from "../../../vendor/preact.js";
import { api, ApiProblem } from "./api.js";
import * as app from "./app.js";

const QUIET_MS = 1000;
const MAX_COUNTS = 20;

/** Models that have answered since the page was drawn, whatever their state was then. @type {import("../../../vendor/preact.js").Signal<Set<string>>} */
const answered = signal(new Set());
app.endListeners.add((_, { facts }) => {
  if (facts.state === "ended" && facts.model && !answered.value.has(facts.model)) answered.value = new Set([...answered.value, facts.model]);
});

/** @param {string} model */
export const isLoaded = (model) => app.modelOf(model)?.state === "ready" || answered.value.has(model);

/** How many tokens the texts that were counted last have, by model and text. @type {import("../../../vendor/preact.js").Signal<Map<string, number>>} */
const counts = signal(new Map());
/** What is being counted. @type {Set<string>} */
const asked = new Set();

/** The number of tokens of a text, null while it is not known. @param {string} model @param {string} text @returns {number | null} */
export function useTokenCount(model, text) {
  const key = text.trim() && isLoaded(model) ? JSON.stringify([model, text]) : "";
  const found = counts.value.get(key);
  useEffect(() => {
    if (!key || found !== undefined) return undefined;
    const timer = setTimeout(() => count(key, model, text), QUIET_MS);
    return () => clearTimeout(timer);
  }, [key, found === undefined]);
  return found ?? null;
}

/** Count a text once for all that show it: each request has a line in the server's log. @param {string} key @param {string} model @param {string} text */
async function count(key, model, text) {
  if (asked.has(key) || counts.value.has(key)) return;
  asked.add(key);
  try {
    const { num_tokens: num } = await api("POST", "count", { model, text });
    counts.value = new Map([...counts.value, /** @type {const} */ ([key, num])].slice(-MAX_COUNTS));
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
  } finally {
    asked.delete(key);
  }
}
