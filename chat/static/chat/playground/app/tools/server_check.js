// @ts-check
// What the server says of a schema, an expression or a grammar, and whether a text satisfies it.
import { useAnswer } from "../core/use_answer.js";

/** @typedef {{is_valid: boolean, problems: {message: string, path?: string}[], matches: boolean | null, example: any, max_bytes: number}} Checked `max_bytes`: of the JSON of a schema */

const QUIET_MS = 350;

/** Null until the server has answered, and where it cannot. @param {string} kind "" asks nothing @param {any} value @param {string} [text] @returns {Checked | null} */
export const useServerCheck = (kind, value, text) => useAnswer("check", kind ? { kind, value, ...(text === undefined ? {} : { text }) } : null, QUIET_MS);
