// @ts-check
/** Answers that are shown by their tokens from the beginning, as they were asked for from this view. @type {Set<string>} */
export const beginAsTokens = new Set();
