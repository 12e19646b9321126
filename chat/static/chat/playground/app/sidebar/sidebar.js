// @ts-check
/** @param {any} _props */
export const Sidebar = (_props) => null;
