// @ts-check
/** @param {any} _props */
export const ContextMeter = (_props) => null;
