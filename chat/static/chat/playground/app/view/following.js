// @ts-check
// Keeps the newest in sight while the reader is at the end, and lets go when they scroll up.
const NEAR_PX = 40;

export class Following {
  /** @param {HTMLElement} area scrolls @param {HTMLElement} content grows in it @param {(isAtEnd: boolean) => void} onChange */
  constructor(area, content, onChange) {
    this.area = area;
    this.content = content;
    this.onChange = onChange;
    this.follows = true;
    this.top = 0;
    this.onScroll = () => this.#scrolled();
    area.addEventListener("scroll", this.onScroll);
    this.onWheel = (/** @type {WheelEvent} */ event) => this.#wheeled(event);
    area.addEventListener("wheel", this.onWheel, { passive: true });
    // NOTE: messages out of sight have a guessed height until they come into it, so that the end moves while it is scrolled to.
    this.observer = new ResizeObserver(() => this.#grown());
    this.observer.observe(area);
    this.observer.observe(content);
  }

  end() {
    this.observer.disconnect();
    this.area.removeEventListener("scroll", this.onScroll);
    this.area.removeEventListener("wheel", this.onWheel);
  }

  get isAtEnd() {
    return this.content.childElementCount === 0 || this.area.scrollHeight - this.area.scrollTop - this.area.clientHeight < NEAR_PX;
  }

  toEnd() {
    this.follows = true;
    this.#grown();
  }

  /** Stay where a message begins so far below the upper edge. @param {Element} message @param {number} top in pixels */
  stayAt(message, top) {
    this.follows = false;
    this.#show();
    message.scrollIntoView({ block: "start", behavior: "instant" });
    this.area.scrollTop += message.getBoundingClientRect().top - this.area.getBoundingClientRect().top - top;
    this.top = this.area.scrollTop;
  }

  #grown() {
    if (this.follows && this.content.childElementCount > 0) this.area.scrollTop = this.area.scrollHeight;
    this.top = this.area.scrollTop;
    this.#show();
  }

  /** Growth never moves the reader up; whoever goes up wants to read there. */
  #scrolled() {
    if (this.isAtEnd) this.follows = true;
    else if (this.area.scrollTop < this.top) this.follows = false;
    this.top = this.area.scrollTop;
    this.#show();
  }

  /** Let go before the scrolling is seen: what grows meanwhile would undo it. @param {WheelEvent} event */
  #wheeled({ deltaY }) {
    if (deltaY < 0 && this.area.scrollTop > 0) this.follows = false;
  }

  #show() {
    this.area.style.overflowAnchor = this.follows ? "none" : "auto";
    this.onChange(this.isAtEnd);
  }
}
