// @ts-check
import { escape } from "../view/escape.js";

export function listenToKeys() {
  document.addEventListener("keydown", (event) => event.key === "Escape" && !event.defaultPrevented && escape());
}
