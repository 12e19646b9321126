// @ts-check
/** @param {any} _props */
export const Insight = (_props) => null;
