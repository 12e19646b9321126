// @ts-check
import { parse } from "../core/json.js";

const INDENT = "  ";

/** Set JSON out over lines, also while it is still arriving; other text stays as it is. @param {string} text */
export function pretty(text) {
  const parsed = parse(text);
  if (parsed.isWhole) return JSON.stringify(parsed.value, null, 2);
  return /^\s*[[{]/.test(text) ? spread(text) : text;
}

/** The lines of JSON without an end. @param {string} text */
function spread(text) {
  let depth = 0;
  let isInString = false;
  let spreadOut = "";
  const line = () => `\n${INDENT.repeat(Math.max(depth, 0))}`;
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at];
    if (isInString) {
      spreadOut += letter === "\\" ? letter + (text[++at] ?? "") : letter;
      isInString = letter !== '"';
    } else if (letter === '"') {
      isInString = true;
      spreadOut += letter;
    } else if (letter === "{" || letter === "[") {
      depth += 1;
      spreadOut += letter + line();
    } else if (letter === "}" || letter === "]") {
      depth -= 1;
      spreadOut = spreadOut.trimEnd() + line() + letter;
    } else if (letter === ",") spreadOut += letter + line();
    else if (letter === ":") spreadOut += ": ";
    else if (!/\s/.test(letter)) spreadOut += letter;
  }
  return spreadOut;
}
