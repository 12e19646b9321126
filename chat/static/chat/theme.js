// Applies the reader's theme before the first paint; "system" follows the browser. Loaded in <head>, on purpose not deferred.
// Every page keeps the choice under the same key. Buttons with data-set-theme choose; "lightcone-theme" tells of each change.
(() => {
  const KEY = "lightcone.theme";
  const THEMES = ["system", "light", "dark"];
  let chosen = "system";
  try {
    chosen = localStorage.getItem(KEY) || chosen;
  } catch {
    /* no storage: the system's theme */
  }

  const apply = (theme) => {
    chosen = THEMES.includes(theme) ? theme : "system";
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    for (const button of document.querySelectorAll("[data-set-theme]")) {
      button.setAttribute("aria-pressed", String(button.dataset.setTheme === chosen));
    }
    document.dispatchEvent(new CustomEvent("lightcone-theme", { detail: chosen }));
  };

  window.lightconeTheme = {
    current: () => chosen,
    set(theme) {
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        /* private mode: the choice lasts for this page only */
      }
      apply(theme);
    },
  };
  apply(chosen);
  addEventListener("storage", (event) => {
    if (event.key === KEY) apply(event.newValue);
  });
  addEventListener("DOMContentLoaded", () => apply(chosen));
  addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-set-theme]");
    if (button) window.lightconeTheme.set(button.dataset.setTheme);
  });
})();
