// @ts-check
import { html, useEffect, useRef } from "../../../vendor/preact.js";

/** @param {{text: string, isWhole: boolean}} props */
export function Prose({ text }) {
  const ref = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    if (ref.current) ref.current.textContent = text;
  }, [text]);
  return html`<div ref=${ref}></div>`;
}
