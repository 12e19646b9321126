// @ts-check
import { html } from "../../../vendor/preact.js";

/** Outlines on a grid of 24. */
const PATHS = {
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M5 12l7-7 7 7",
  menu: "M4 6h16M4 12h16M4 18h10",
  sliders: "M4 7h9M19 7h1M4 17h1M11 17h9M13 7a3 3 0 1 0 6 0a3 3 0 1 0-6 0M5 17a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.5l4.5 4.5L19 7",
  again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  forward: "M5 5l7 7-7 7M13 5l7 7-7 7",
  left: "M14.5 6L8.5 12l6 6",
  right: "M9.5 6l6 6-6 6",
  down: "M6 9.5l6 6 6-6",
  up: "M6 14.5l6-6 6 6",
  close: "M6 6l12 12M18 6L6 18",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13M15.5 15.5L20 20",
  more: "M4.500 12a.5.5 0 1 0 1 0a.5.5 0 1 0-1 0M11.500 12a.5.5 0 1 0 1 0a.5.5 0 1 0-1 0M18.500 12a.5.5 0 1 0 1 0a.5.5 0 1 0-1 0",
  code: "M8.5 7L3.5 12l5 5M15.5 7l5 5-5 5",
  pin: "M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v5",
  folder: "M3 6h6l2 2h10v11H3z",
  archive: "M4 8h16v12H4zM3 4h18v4H3zM10 12h4",
  tag: "M4 4h8l8.500 8.500-8 8L4 12zM8 8h.01",
  filter: "M4 6h16M7 12h10M10 18h4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  share: "M12 15V4M8 8l4-4 4 4M5 13v7h14v-7",
  download: "M12 4v11M8 11l4 4 4-4M5 20h14",
  upload: "M12 15V4M8 8l4-4 4 4M5 20h14",
  clip: "M19 11l-8 8a5 5 0 0 1-7-7l8-8a3.3 3.3 0 0 1 5 5l-8 8a1.7 1.7 0 0 1-2.5-2.500L14 8",
  document: "M6 3h8l5 5v13H6zM14 3v5h5M9 13h7M9 17h5",
  microphone: "M12 4a2.500 2.500 0 0 0-2.500 2.500v5a2.500 2.500 0 0 0 5 0v-5A2.500 2.500 0 0 0 12 4M6 11.500a6 6 0 0 0 12 0M12 17.500V21",
  image: "M4 5h16v14H4zM8 9.500h.01M4.500 17l5-5 3.500 3.500 2.500-2.500 4 4",
  resize: "M14 4h6v6M20 4l-7 7M10 20H4v-6M4 20l7-7",
  clock: "M12 4a8 8 0 1 0 0 16a8 8 0 1 0 0-16M12 8v4.500l3 2",
  columns: "M4 5h16v14H4zM12 5v14",
  tokens: "M4 6h7v5H4zM14 6h6v5h-6zM4 14h5v5H4zM12 14h8v5h-8z",
  ghost: "M5 20V11a7 7 0 0 1 14 0v9l-2.3-2-2.3 2-2.4-2-2.4 2-2.3-2zM9.5 11h.01M14.5 11h.01",
  tool: "M14.5 6.500a4 4 0 0 1 5-1.500l-2.5 2.5 1.5 1.500L21 6.500a4 4 0 0 1-5.5 5L8 19a2 2 0 0 1-3-3l7.5-7.500a4 4 0 0 1 2-2z",
  text: "M5 6h14M5 12h14M5 18h8",
  theme: "M12 3a9 9 0 1 0 0 18a9 9 0 1 0 0-18M12 3v18M12 8h7M12 13h8.500M12 18h5",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
  leave: "M14 5H5v14h9M10 12h10M16 8l4 4-4 4",
  user: "M12 4a4 4 0 1 0 0 8a4 4 0 1 0 0-8M4.5 20a7.5 7.5 0 0 1 15 0",
  insight: "M4 19V5M4 19h16M8 15l4-5 3 3 5-6",
};

/** @typedef {keyof typeof PATHS} IconName */

/** @param {{name: IconName, size?: number}} props */
export function Icon({ name, size = 18 }) {
  return html`<svg class="icon" viewBox="0 0 24 24" width=${size} height=${size} aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

/** The sign for "stop", which is filled. */
export const StopIcon = () => html`<svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true"><rect x="6" y="6" width="12" height="12" rx="2" fill="currentColor" stroke="none" /></svg>`;
