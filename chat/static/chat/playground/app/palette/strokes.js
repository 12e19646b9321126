// @ts-check
// Keys in writing: "Mod+K" (Ctrl, or Cmd on Apple's machines), "Alt+ArrowUp", "e", and one after the other: "g n".
import { t } from "../core/i18n.js";

const isApple = /Mac|iPhone|iPad/.test(navigator.platform);
const BARE = new Set(["Control", "Meta", "Alt", "Shift", "AltGraph", "CapsLock", "Dead", "Process", "Unidentified"]);
const PRINTED = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Delete: "Del" };

/** What browsers do with keys themselves: tabs, windows, address, bookmarks, developer tools, zoom, editing. */
const OF_BROWSER = new Set(
  ["t", "n", "w", "r", "l", "d", "q", "s", "p", "f", "g", "h", "j", "o", "u", "m", "a", "c", "v", "x", "y", "z", "b", "e", "i", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "+", "-", "=", "Tab"].map(
    (key) => `Mod+${key}`,
  ),
);
const OF_PAGE = new Set(["Escape", "Enter", "Tab", " ", "Shift+Tab", "Shift+Enter", "Backspace", "Delete", "Shift+ArrowLeft", "Shift+ArrowRight"]);

/** Write down which keys an event tells of; "" for a modifier alone. @param {KeyboardEvent} event */
export function strokeOf(event) {
  if (BARE.has(event.key) || event.getModifierState("AltGraph")) return "";
  const isMod = event.ctrlKey || event.metaKey;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  // A sign such as "/" or "?" needs Shift on some keyboards and not on others.
  const hasShift = event.shiftKey && (key.length > 1 || key !== key.toUpperCase());
  return [isMod && "Mod", event.altKey && "Alt", hasShift && "Shift", key].filter(Boolean).join("+");
}

/** Whether these keys type something in a field. @param {string} keys */
export const isPlain = (keys) => !/^(Mod|Alt)\+/.test(keys);

/** Whether they are letters or signs without a modifier. @param {string} keys */
export const isLetter = (keys) => /^(Shift\+)?\S( |$)/.test(keys);

/** Why an act cannot have these keys; "" if it can. @param {string} keys */
export function refusal(keys) {
  const taken = keys.split(" ").some((stroke) => OF_BROWSER.has(stroke) || /^(Mod|Alt)\+(Shift|Alt)\+\S$|F\d+$|^Alt\+(\S|Arrow(Left|Right)|Home|Tab|F\d+)$/.test(stroke));
  if (taken) return t("{keys} belongs to the browser or the system; choose others.", { keys: shown(keys) });
  return OF_PAGE.has(keys) ? t("{keys} has a fixed meaning on every page; choose others.", { keys: shown(keys) }) : "";
}

/** The keys as they are printed on a keyboard. @param {string} keys */
export function shown(keys) {
  return keys.split(" ").map(shownStroke).join(" ");
}

/** @param {string} stroke */
function shownStroke(stroke) {
  const parts = stroke.split("+").map((part) => {
    if (part === "Mod") return isApple ? "⌘" : "Ctrl";
    if (part === "Alt" && isApple) return "⌥";
    return PRINTED[/** @type {keyof typeof PRINTED} */ (part)] ?? part;
  });
  const key = parts.at(-1) ?? "";
  return [...parts.slice(0, -1), parts.length > 1 ? key.toUpperCase().replace(/^(ENTER|ESCAPE)$/, (name) => name[0] + name.slice(1).toLowerCase()) : key].join(isApple ? " " : "+");
}
