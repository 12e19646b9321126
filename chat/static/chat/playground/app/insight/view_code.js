// @ts-check
/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

/** @param {Chat} _open @param {Turn} [_turn] */
export function showCode(_open, _turn) {}
