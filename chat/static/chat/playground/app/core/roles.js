// @ts-check
import { mark, t } from "./i18n.js";

/** @import { Role } from "./types.js" */

const NAMES = { system: mark("System"), developer: mark("Developer"), user: mark("You"), assistant: mark("Assistant"), tool: mark("Tool result") };

/** What the page calls whoever a message is from. @param {Role} role */
export const roleName = (role) => t(NAMES[role]);
