// The button that goes through the themes (theme.js).
const THEMES = ["system", "light", "dark"];

export function setUpThemeButton(button) {
  const show = () => {
    const label = `Theme: ${window.lightconeTheme.current()}`;
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  button.addEventListener("click", () => {
    window.lightconeTheme.set(THEMES[(THEMES.indexOf(window.lightconeTheme.current()) + 1) % THEMES.length]);
    show();
  });
  show();
}
