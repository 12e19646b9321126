// @ts-check
// What the left column shows of itself: its view, the row that is renamed, the rows that are picked, the open menu.
import { signal } from "../../../vendor/preact.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatFacts } from "../core/types.js" */

/** @typedef {"current" | "archived" | "deleted"} View */

/** @type {Signal<View>} */
export const view = signal("current");
/** The conversation whose title is edited, "" for none. */
export const renaming = signal("");
/** The conversations that are picked; null while none can be. @type {Signal<Set<string> | null>} */
export const picked = signal(null);
/** The row whose menu is open. @type {Signal<{facts: ChatFacts, anchor: HTMLElement} | null>} */
export const rowMenu = signal(null);
