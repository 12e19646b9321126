// @ts-check
/** @param {any} _props */
export const TokenView = (_props) => null;
