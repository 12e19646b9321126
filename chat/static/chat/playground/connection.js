// The socket to the server: reconnects by itself, hands each message to the run that it names.
const RETRY_MS = [250, 500, 1000, 2000, 5000];

export class Connection {
  /** `onState(state)`: "connecting", "ready" or "lost". */
  constructor(url, onState) {
    this.url = url;
    this.onState = onState;
    this.runs = new Map();
    this.failures = 0;
    this.open();
  }

  open() {
    this.socket = new WebSocket(this.url);
    this.socket.addEventListener("open", () => {
      this.failures = 0;
      this.onState("ready");
    });
    this.socket.addEventListener("message", (event) => {
      const message = JSON.parse(event.data);
      this.runs.get(message.id)?.(message);
      if (message.type === "completed" || message.type === "error") this.runs.delete(message.id);
    });
    this.socket.addEventListener("close", (event) => this.lost(event.code));
  }

  lost(code) {
    const error = { message: "The connection to the server was lost. The text so far is kept.", code: "connection_lost" };
    for (const [id, handle] of this.runs) handle({ type: "error", id, error });
    this.runs.clear();
    this.onState("lost");
    if (code === 4401) {
      location.reload();
      return;
    }
    setTimeout(() => {
      this.onState("connecting");
      this.open();
    }, RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
  }

  get isReady() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  /** Start a run; `handle` gets its messages up to "completed" or "error". */
  start(id, request, handle) {
    this.runs.set(id, handle);
    this.socket.send(JSON.stringify({ type: "start", id, request }));
  }

  stop(id) {
    this.socket.send(JSON.stringify({ type: "stop", id }));
  }
}
