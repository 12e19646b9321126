// @ts-check
/** @import { ModelFacts } from "./types.js" */

/**
 * @typedef {object} PageData what the server says of this page
 * @property {number} user whose page it is
 * @property {string} user_name
 * @property {string} csrf_token
 * @property {boolean} has_console
 * @property {boolean} manages_models
 * @property {ModelFacts[]} models
 * @property {string[]} fields names that a request may have
 * @property {number} max_bytes of a message to the socket
 * @property {number} max_body_bytes of a request to the page's routes
 * @property {{max_items: number, max_files: number, max_file_bytes: number}} media what a request may have of images and of sounds, of documents, and what a file may have
 * @property {string} language
 * @property {Record<string, string>} strings translations of the page's English texts
 * @property {Record<string, any>} state what this page has kept for the user
 * @property {import("./types.js").Draft} draft of the new chat
 * @property {boolean} admins_can_read
 * @property {boolean} sharing whether links to chats may be made
 * @property {Record<string, string>} urls
 */

/** @type {PageData} */
export const page = JSON.parse(document.getElementById("page-data")?.textContent ?? "{}");
