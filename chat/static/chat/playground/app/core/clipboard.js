// @ts-check
// Copying, also where the browser offers no clipboard to pages: those that are served over plain HTTP.

/** @param {string} text @returns {Promise<boolean>} whether it was copied */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** @param {string} text */
function copyBySelection(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.readOnly = true;
  area.className = "visually-hidden";
  // A modal dialog takes the focus from everything outside of it.
  (focused?.closest("dialog") ?? document.body).append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
    if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
  }
}
