// @ts-check
// What the reader has chosen about keys and speech; kept on the server for all their devices.
import { signal } from "../../../vendor/preact.js";
import { readState, speaker, writeState } from "../core/app.js";

/** @import { Signal } from "../../../vendor/preact.js" */

/**
 * @typedef {object} Preferences
 * @property {boolean} enterSends else Enter begins a line, and Ctrl+Enter sends
 * @property {boolean} letters whether keys without a modifier do anything
 * @property {boolean} speaks whether answers are spoken to screen readers
 * @property {Record<string, string>} bound the keys of acts by their ids, where they are not the usual ones; "" for none
 */

/** @type {Signal<Preferences>} */
export const preferences = signal({ enterSends: true, letters: true, speaks: true, bound: {}, ...readState("keys") });
speaker.isOn = preferences.value.speaks;

/** @param {Partial<Preferences>} changes */
export function prefer(changes) {
  preferences.value = { ...preferences.value, ...changes };
  speaker.isOn = preferences.value.speaks;
  writeState("keys", preferences.value);
}
