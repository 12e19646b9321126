// @ts-check
import { number, plural, t } from "./i18n.js";

/** @import { Message } from "./types.js" */

/** Say what a run waits for; nothing while it is about to begin. @param {Message} message */
export function waitingText({ state, phase, fraction, num_before: numBefore }) {
  const queue = numBefore === 0 ? "" : plural(numBefore, "One request is before yours.", "{n} requests are before yours.");
  if (state === "loading") return `${loadingText(phase, fraction)}. ${queue}`.trim();
  if (state === "unloaded") return `${t("The model is about to be loaded.")} ${queue}`.trim();
  return queue;
}

/** @param {string} [phase] @param {number} [fraction] */
export function loadingText(phase, fraction) {
  const percent = fraction ? `, ${number(Math.round(100 * fraction))} %` : "";
  return `${t("Loading the model: {phase}", { phase: phase || t("starting") })}${percent}`;
}
