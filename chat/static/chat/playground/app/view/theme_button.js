// @ts-check
import { html, useState } from "../../../vendor/preact.js";
import { mark, t } from "../core/i18n.js";

const THEMES = [
  { id: "system", title: mark("System") },
  { id: "light", title: mark("Light") },
  { id: "dark", title: mark("Dark") },
];

/** The theme of all pages of this browser (theme.js). */
export function ThemeButton() {
  const { lightconeTheme: themes } = /** @type {{lightconeTheme: {current: () => string, set: (theme: string) => void}}} */ (/** @type {unknown} */ (globalThis));
  const [current, setCurrent] = useState(themes.current());
  const pick = (/** @type {string} */ id) => {
    themes.set(id);
    setCurrent(id);
  };
  return html`<div class="segments" role="group" aria-label=${t("Theme")}>
    ${THEMES.map(({ id, title }) => html`<button type="button" key=${id} class="segment" aria-pressed=${id === current} onClick=${() => pick(id)}>${t(title)}</button>`)}
  </div>`;
}
