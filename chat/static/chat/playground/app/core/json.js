// @ts-check
// JSON that people and models have written, which may be none.

/** @param {string} text @returns {{isWhole: boolean, value?: any, problem: string}} */
export function parse(text) {
  try {
    return { isWhole: true, value: JSON.parse(text), problem: "" };
  } catch (error) {
    return { isWhole: false, problem: /** @type {Error} */ (error).message };
  }
}

/** @param {any} value @returns {value is Record<string, any>} */
export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** The object that a text is, empty for no text; null if it is none. @param {string} text @returns {Record<string, any> | null} */
export function objectFrom(text) {
  const { value } = parse(text.trim() || "{}");
  return isObject(value) ? value : null;
}

/** A value as text, for comparison: the order of names says nothing. @param {any} value @returns {string} */
export const canonical = (value) => JSON.stringify(value, (_, part) => (isObject(part) ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1))) : part));

/** Whether two JSON values say the same. @param {any} one @param {any} other */
export const isSame = (one, other) => canonical(one) === canonical(other);
