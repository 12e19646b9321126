// Copying, also where the browser offers no clipboard to pages: those that are served over plain HTTP.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.readOnly = true;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
    focused?.focus({ preventScroll: true });
  }
}

/** Copy and say on the button how it went. */
export async function copyWith(button, text) {
  button.textContent = (await copyText(text)) ? "Copied" : "Not allowed by the browser";
  setTimeout(() => (button.textContent = "Copy"), 1500);
}
