// @ts-check
/** A text as HTML that shows it, and is nothing else. @param {string} text */
export const escapeHtml = (text) => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
