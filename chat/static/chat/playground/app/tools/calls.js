// @ts-check
/** @param {any} _props */
export const Calls = (_props) => null;
