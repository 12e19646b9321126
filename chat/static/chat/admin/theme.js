// The console's theme is that of all pages (theme.js, which is loaded first). django-unfold keeps its own under "adminTheme", as
// JSON and with "auto" for "system", and sets the class "dark": what either side chooses, the other one takes up.
"use strict";
(() => {
  const unfoldName = (theme) => (theme === "system" ? "auto" : theme);
  const isDark = (theme) => theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);

  const chosen = window.lightconeTheme.current();
  try {
    localStorage.setItem("adminTheme", JSON.stringify(unfoldName(chosen)));
  } catch {
    /* no storage: Alpine has none either */
  }
  document.documentElement.classList.toggle("dark", isDark(chosen)); // before Alpine has started, so that nothing flashes

  document.addEventListener("alpine:initialized", () => {
    const unfold = Alpine.$data(document.documentElement);
    Alpine.effect(() => {
      const theme = unfold.adminTheme === "auto" ? "system" : unfold.adminTheme;
      if (theme !== window.lightconeTheme.current()) window.lightconeTheme.set(theme);
    });
    document.addEventListener("lightcone-theme", (event) => {
      unfold.adminTheme = unfoldName(event.detail);
    });
    // django-unfold looks at the system's theme once only.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      if (unfold.adminTheme === "auto") document.documentElement.classList.toggle("dark", isDark("system"));
    });
  });
})();
