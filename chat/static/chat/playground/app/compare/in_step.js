// @ts-check
// Scrolling of several transcripts in step: the same turn, at the same part of it.

/** Scroll others to where the reader is in the one that leads. @param {HTMLElement} leader @param {HTMLElement[]} others */
export function scrollInStep(leader, others) {
  const isAtEnd = leader.scrollHeight - leader.scrollTop - leader.clientHeight < 4;
  if (isAtEnd) {
    for (const other of others) other.scrollTop = other.scrollHeight;
    return;
  }
  const top = leader.getBoundingClientRect().top;
  const rects = turnsIn(leader).map((turn) => turn.getBoundingClientRect());
  const at = rects.findIndex(({ bottom }) => bottom > top);
  if (at < 0) return;
  const part = (top - rects[at].top) / rects[at].height;
  for (const other of others) {
    const rect = turnsIn(other)[at]?.getBoundingClientRect();
    if (!rect) continue;
    other.scrollTop += rect.top + part * rect.height - other.getBoundingClientRect().top;
    other.dispatchEvent(new Event("scroll")); // at once, or it is kept at its end
  }
}

/** @param {HTMLElement} area */
const turnsIn = (area) => [...area.querySelectorAll("[data-turn]")];
