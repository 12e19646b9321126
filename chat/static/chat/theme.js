// Applies the reader's theme before the first paint; "system" follows the browser. Loaded in <head>, on purpose not deferred.
(() => {
  const saved = () => {
    try {
      return localStorage.getItem("lightcone.theme") || "system";
    } catch {
      return "system";
    }
  };
  const apply = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  apply(saved());
  window.lightconeTheme = {
    current: saved,
    set(theme) {
      try {
        localStorage.setItem("lightcone.theme", theme);
      } catch {
        /* private mode: the choice lasts for this page only */
      }
      apply(theme);
    },
  };
})();
