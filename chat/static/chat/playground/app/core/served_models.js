// @ts-check
// Keeps what is known of the models up to date: while somebody looks at them or waits for one, and when the page is looked at again.
import { computed, effect, signal } from "../../../vendor/preact.js";
import { attempt } from "./acts.js";
import { api, refusalOf } from "./api.js";
import * as app from "./app.js";

const PAUSE_MS = 1500;

/** Somebody looks at the list. */
export const isLookedAt = signal(false);

const isWanted = computed(() => {
  const waits = app.chat.value.isBusy.value && app.model.value && app.model.value.state !== "ready";
  return isLookedAt.value || waits || app.models.value.some(({ state }) => state === "loading");
});

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let isReading = false;

async function refreshModels() {
  if (isReading) return;
  isReading = true;
  clearTimeout(timer);
  try {
    await refusalOf(async () => (app.models.value = (await api("GET", "models")).data)); // the next reading tells
  } finally {
    isReading = false;
  }
  if (isWanted.value) timer = setTimeout(refreshModels, PAUSE_MS);
}

/** Ask for a model to be loaded; the list tells how far it is. @param {string} name */
export async function loadModel(name) {
  if (!(await attempt(() => api("POST", "models/load", { model: name })))) return;
  // The worker says so a moment later.
  const begun = (/** @type {import("./types.js").ModelFacts} */ facts) => (facts.id === name ? { ...facts, state: "loading", phase: "", fraction: 0 } : facts);
  app.models.value = app.models.value.map(begun);
}

effect(() => {
  if (isWanted.value) timer = setTimeout(refreshModels, isLookedAt.peek() ? 0 : PAUSE_MS);
  else clearTimeout(timer);
});
addEventListener("focus", refreshModels);
app.endListeners.add((_, turn) => {
  const { error } = turn.facts;
  if (error && (error.param === "model" || error.code?.startsWith("model_"))) refreshModels();
});
