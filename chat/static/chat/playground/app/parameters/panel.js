// @ts-check
/** @param {any} _props */
export const Panel = (_props) => null;
