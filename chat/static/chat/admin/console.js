"use strict";

// Copy buttons: <button data-copy="#id" hidden>. They stay hidden where the page cannot reach the clipboard.
document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const source = document.querySelector(button.dataset.copy);
    const status = document.querySelector(".lc-copied");
    if (!source || !navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        if (status) status.textContent = "Copied.";
      } catch {
        getSelection().selectAllChildren(source);
        if (status) status.textContent = "Press Ctrl+C to copy the marked text.";
      }
    });
  }
});
