// @ts-check
/** @param {any} _props */
export const ToolsEditor = (_props) => null;
