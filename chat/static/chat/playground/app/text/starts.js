// @ts-check
// Where an extension of Markdown may begin. marked asks at each paragraph and each piece of text, with all the rest of the answer behind it:
// to search that to its end would take time with the square of its length.

const WINDOW = 400;

/** Within the lines up to the next empty one, where a paragraph ends. @param {RegExp} pattern @returns {(text: string) => number | undefined} */
export const startOfBlock = (pattern) => (text) => {
  const end = text.indexOf("\n\n");
  return (end < 0 ? text : text.slice(0, end)).match(pattern)?.index;
};

/**
 * Within the next words; behind them marked goes on and asks again.
 * @param {RegExp} pattern
 * @returns {(text: string) => number | undefined}
 */
export const startInLine = (pattern) => (text) => {
  const part = text.slice(0, WINDOW);
  const found = part.match(pattern);
  if (found || part.length === text.length) return found?.index;
  const space = part.lastIndexOf(" ");
  return space > 0 ? space : text.match(pattern)?.index;
};
