// Keeps the newest in sight while the reader is at the end, and lets go when they scroll up.
const NEAR_PX = 40;

export class Scrolling {
  /** `area` scrolls, `content` is what grows in it, `jump` the button that leads to the end. */
  constructor(area, content, jump) {
    this.area = area;
    this.content = content;
    this.jump = jump;
    this.follows = true;
    this.top = 0;
    area.addEventListener("scroll", () => this.scrolled());
    jump.addEventListener("click", () => this.toEnd());
    // NOTE: messages out of sight have a guessed height until they come into it, so that the end moves while it is scrolled to.
    const observer = new ResizeObserver(() => this.grown());
    observer.observe(area);
    observer.observe(content);
  }

  get isAtEnd() {
    return this.content.childElementCount === 0 || this.area.scrollHeight - this.area.scrollTop - this.area.clientHeight < NEAR_PX;
  }

  toEnd() {
    this.follows = true;
    this.grown();
  }

  grown() {
    if (this.follows && this.content.childElementCount > 0) this.area.scrollTop = this.area.scrollHeight;
    this.top = this.area.scrollTop;
    this.show();
  }

  /** Growth never moves the reader up; whoever goes up wants to read there. */
  scrolled() {
    if (this.isAtEnd) this.follows = true;
    else if (this.area.scrollTop < this.top) this.follows = false;
    this.top = this.area.scrollTop;
    this.show();
  }

  show() {
    this.area.style.overflowAnchor = this.follows ? "none" : "auto";
    this.jump.hidden = this.isAtEnd;
  }
}
