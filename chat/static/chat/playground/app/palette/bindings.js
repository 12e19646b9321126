// @ts-check
// Which keys an act has by now.
import { preferences } from "./preferences.js";
import { shown } from "./strokes.js";

/** @import { Place } from "./places.js" */

/**
 * @typedef {object} Act
 * @property {string} id
 * @property {() => string} title
 * @property {string} [keys] the usual ones
 * @property {boolean} [ofMessage] it does something with the message that has the focus
 * @property {(place: Place) => boolean} [when] left out: always
 * @property {boolean} [repeats] a key that is held down does it again and again
 * @property {(place: Place) => void} run
 */

/** The present keys of an act, "" for none. @param {Act} act */
export const keysOf = ({ id, keys = "" }) => preferences.value.bound[id] ?? keys;

/** The present keys of an act as they are shown. @param {Act} act */
export const shownKeys = (act) => shown(keysOf(act));
