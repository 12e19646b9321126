// @ts-check
// What is removed or disabled takes the focus with it. It goes to what stood around it then, or to the message box: never to nothing.

/** Views that take the focus themselves have done so by then. */
const DELAY_MS = 120;
const STOPS = "[tabindex], dialog, #sidebar, #panel";
const isTouch = matchMedia("(pointer: coarse)");

/** What had the focus last, and all that stood around it, from inside out. @type {Element[]} */
let trail = [];
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

export function keepFocus() {
  document.addEventListener("focusin", ({ target }) => (trail = around(/** @type {Element} */ (target))));
  const changed = () => {
    if (trail.length === 0 || timer || isUsable(trail[0])) return;
    timer = setTimeout(putBack, DELAY_MS);
  };
  new MutationObserver(changed).observe(document.body, { childList: true, subtree: true, attributeFilter: ["disabled"] });
}

function putBack() {
  timer = undefined;
  const isLost = document.activeElement === document.body || document.activeElement === trail[0];
  if (!isLost || trail.length === 0 || isUsable(trail[0])) return;
  const stop = trail.slice(1).find((node) => isUsable(node) && node.matches(STOPS));
  const first = stop && (stop.matches("[tabindex]") ? stop : [...stop.querySelectorAll("input, button")].find(isUsable));
  const last = document.querySelector(isTouch.matches ? "#conversation" : "#composer-text");
  /** @type {HTMLElement | null} */ (first ?? last)?.focus({ preventScroll: true });
}

/** @param {Element} node */
function around(node) {
  const found = [];
  for (let at = /** @type {Element | null} */ (node); at && at !== document.body; at = at.parentElement) found.push(at);
  return found;
}

/** @param {Element} node */
const isUsable = (node) => node.isConnected && !node.matches(":disabled") && node.checkVisibility();
