// @ts-check
export const Verdict = (/** @type {any} */ _props) => null;
