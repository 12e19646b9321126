// @ts-check
import { signal } from "../../../vendor/preact.js";

/** @import { Chat } from "../core/chat.js" */

/** Whether chats are compared, side by side. */
export const comparing = signal(false);

/** @param {Chat} _open */
export function startComparing(_open) {}
