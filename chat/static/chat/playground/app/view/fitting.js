// @ts-check
/** Make a text area as high as its text. @param {HTMLTextAreaElement} area */
export function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}
