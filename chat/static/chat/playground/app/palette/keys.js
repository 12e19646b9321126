// @ts-check
// Finds the act of a key, or of two keys one after the other.
import { escape } from "../view/escape.js";
import { dialog } from "../view/layers.js";
import { ACTS } from "./acts_list.js";
import { keysOf } from "./bindings.js";
import { isField, placeNow } from "./places.js";
import { preferences } from "./preferences.js";
import { isLetter, isPlain, strokeOf } from "./strokes.js";

const SECOND_KEY_MS = 1500;

/** The first of two keys, "" for none. */
let first = "";
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

export function listenToKeys() {
  document.addEventListener("keydown", pressed);
  document.addEventListener("keys-in-editor", pressedInEditor);
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.defaultPrevented || event.isComposing) return;
  if (event.key === "Escape") return event.repeat ? undefined : escape();
  const stroke = strokeOf(event);
  if (!stroke || dialog.value || (event.target instanceof Element && event.target.closest("dialog"))) return;
  if (isPlain(stroke) && isField(event.target)) return;
  const keys = first ? `${first} ${stroke}` : stroke;
  forget();
  if (isLetter(keys) && !preferences.value.letters) return;
  if (run(keys, event.repeat) || (keys !== stroke && run(stroke, event.repeat))) event.preventDefault();
  else if (!event.repeat && ACTS.some((act) => keysOf(act).startsWith(`${stroke} `))) expect(stroke);
}

/** Do what keys stand for that an editor would take for itself, and say so by preventing its default. @param {Event} event */
function pressedInEditor(event) {
  if (event instanceof CustomEvent && !dialog.value && run(event.detail)) event.preventDefault();
}

/** Do what the keys stand for, if it can be done here: once while they are held down, but for steps. @param {string} keys @param {boolean} [isRepeat] */
function run(keys, isRepeat = false) {
  const place = placeNow();
  const act = ACTS.find((other) => keysOf(other) === keys && (!other.ofMessage || place.turn) && (other.when?.(place) ?? true));
  if (!isRepeat || act?.repeats) act?.run(place);
  return act !== undefined;
}

/** @param {string} stroke */
function expect(stroke) {
  first = stroke;
  timer = setTimeout(forget, SECOND_KEY_MS);
}

function forget() {
  clearTimeout(timer);
  first = "";
}
