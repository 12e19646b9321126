// @ts-check
/** @param {any} _props */
export const OutputEditor = (_props) => null;
