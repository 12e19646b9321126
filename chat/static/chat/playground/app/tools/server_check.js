// @ts-check
// What the server says of a schema, an expression or a grammar, and whether a text satisfies it.
import { number, t } from "../core/i18n.js";
import { useAnswer } from "../core/use_answer.js";

/** @typedef {{is_valid: boolean, problems: {message: string, path?: string}[], matches: boolean | null, num_fitting: number | null, example: any, max_bytes: number}} Checked `num_fitting`: characters of the text that can begin an answer; `max_bytes`: of the JSON of a schema */

const QUIET_MS = 350;
const MAX_SHOWN = 24;

/** Null until the server has answered, and where it cannot. @param {string} kind "" asks nothing @param {any} value @param {string} [text] @returns {Checked | null} */
export const useServerCheck = (kind, value, text) => useAnswer("check", kind ? { kind, value, ...(text === undefined ? {} : { text }) } : null, QUIET_MS);

/** Where a text does not match that should. @param {Checked} checked @param {string} text */
export function mismatch({ num_fitting: numFitting }, text) {
  const rest = [...text].slice(numFitting ?? 0);
  if (rest.length === 0) return t("It does not match: more must follow.");
  const shown = JSON.stringify(rest.slice(0, MAX_SHOWN).join("") + (rest.length > MAX_SHOWN ? "…" : ""));
  return t("It does not match from character {n} on: {rest}", { n: number((numFitting ?? 0) + 1), rest: shown });
}
