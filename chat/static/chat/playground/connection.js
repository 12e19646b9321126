// The socket to the server, which connects again by itself. What the messages mean is the business of runs.js.
const RETRY_MS = [250, 500, 1000, 2000, 5000];
const STEADY_MS = 5000; // one that was lost sooner counts as a failure: a server in trouble may accept and close at once
const SIGNED_OUT = 4401;

export class Connection {
  /** `onState(state)`: "connecting", "ready" or "lost"; `onMessage(message)`. Begins with `open`. */
  constructor(url, { onState, onMessage }) {
    this.url = url;
    this.onState = onState;
    this.onMessage = onMessage;
    this.failures = 0;
  }

  open() {
    this.onState("connecting");
    this.openedAt = Infinity;
    this.socket = new WebSocket(this.url);
    this.socket.addEventListener("open", () => {
      this.openedAt = performance.now();
      this.onState("ready");
    });
    this.socket.addEventListener("message", (event) => this.onMessage(JSON.parse(event.data)));
    this.socket.addEventListener("close", (event) => this.lost(event.code));
  }

  lost(code) {
    this.onState("lost");
    if (code === SIGNED_OUT) {
      location.reload();
      return;
    }
    if (performance.now() - this.openedAt > STEADY_MS) this.failures = 0;
    setTimeout(() => this.open(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
  }

  get isReady() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }
}
