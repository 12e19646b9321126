// @ts-check
// The socket to the server, which connects again by itself, and events over HTTP where a network lets no socket through.
// What the messages mean is the business of runs.js.
import { api, ApiProblem } from "./api.js";
import { t } from "./i18n.js";

/** @import { Message } from "./types.js" */

const RETRY_MS = [250, 500, 1000, 2000, 5000];
const STEADY_MS = 5000; // one that was lost sooner counts as a failure: a server in trouble may accept and close at once
const SIGNED_OUT = 4401;
const TRIES_BEFORE_EVENTS = 2;
const TRIES_OF_ONE_THAT_WAS_THERE = 5; // a server that starts again needs some time

/**
 * @typedef {"connecting" | "ready" | "lost"} ConnectionState
 * @typedef {{onState: (state: ConnectionState) => void, onMessage: (message: Message) => void}} Listener
 */

/** A socket, or after some vain tries events over HTTP, if the server answers there. Begins with `open`. */
export class Connection {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    this.failures = 0;
    this.wasEverReady = false;
    this.openedAt = Infinity;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {EventRoute | null} */
    this.events = null;
  }

  open() {
    this.listener.onState("connecting");
    this.openedAt = Infinity;
    const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/playground`;
    this.socket = new WebSocket(url);
    this.socket.addEventListener("open", () => {
      this.openedAt = performance.now();
      this.wasEverReady = true;
      this.listener.onState("ready");
    });
    this.socket.addEventListener("message", (event) => this.listener.onMessage(JSON.parse(event.data)));
    this.socket.addEventListener("close", (event) => this.#lost(event.code));
  }

  /** @param {number} code */
  async #lost(code) {
    this.listener.onState("lost");
    if (code === SIGNED_OUT) {
      location.reload();
      return;
    }
    if (performance.now() - this.openedAt > STEADY_MS) this.failures = 0;
    this.failures += 1;
    const tries = this.wasEverReady ? TRIES_OF_ONE_THAT_WAS_THERE : TRIES_BEFORE_EVENTS;
    if (this.failures >= tries && (await isServerThere())) {
      this.events = new EventRoute(this.listener.onMessage);
      this.listener.onState("ready");
      return;
    }
    setTimeout(() => this.open(), RETRY_MS[Math.min(this.failures - 1, RETRY_MS.length - 1)]);
  }

  get isReady() {
    return this.events !== null || this.socket?.readyState === WebSocket.OPEN;
  }

  /** @param {Message} message */
  send(message) {
    if (this.events) this.events.send(message);
    else this.socket?.send(JSON.stringify(message));
  }
}

async function isServerThere() {
  try {
    await api("GET", "state");
    return true;
  } catch (error) {
    return error instanceof ApiProblem && error.code !== "unreachable" && !error.isPassing; // a page of a proxy is no answer of the server
  }
}

/** The messages of the socket over HTTP: a POST begins or stops a run, a stream of events tells of it. */
class EventRoute {
  /** @param {(message: Message) => void} onMessage */
  constructor(onMessage) {
    this.onMessage = onMessage;
    /** @type {Map<string, EventSource>} */
    this.sources = new Map();
    /** The last message of each run that the server does not have yet: the next one waits for it. @type {Map<string, Promise<void>>} */
    this.underWay = new Map();
    /** Runs that are stopped: their start is not sent again. @type {Set<string>} */
    this.stopped = new Set();
  }

  /** @param {Message} message */
  async send(message) {
    const { id } = message;
    if (message.type === "stop") this.stopped.add(id);
    const sent = (this.underWay.get(id) ?? Promise.resolve()).then(() => this.#deliver(message));
    this.underWay.set(id, sent);
    await sent;
    if (this.underWay.get(id) !== sent) return;
    this.underWay.delete(id);
    this.stopped.delete(id);
  }

  /** Send a message until it gets through; the server takes one that it has already got for what it is. @param {Message} message */
  async #deliver({ type, id, request }) {
    for (let tries = 0; ; tries += 1) {
      try {
        if (type === "start") await api("POST", "runs", { id, request });
        if (type === "stop") await api("POST", `runs/${id}/stop`);
        else this.#follow(id);
        return;
      } catch (error) {
        if (!(error instanceof ApiProblem)) throw error;
        const isDropped = type === "start" && this.stopped.has(id);
        if (isDropped || error.code !== "unreachable" || !error.isPassing) {
          const told = isDropped ? { message: t("The request was stopped before it was sent."), code: "stopped" } : error;
          this.onMessage({ type: "error", id, error: { message: told.message, code: told.code, param: error.param } });
          return;
        }
        await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
      }
    }
  }

  /** @param {string} id @param {string} [after] the last event that was read, "" for none */
  #follow(id, after = "") {
    this.sources.get(id)?.close();
    // The browser connects again by itself, and names the last event that it has.
    const source = new EventSource(`/playground/api/runs/${id}/events${after && `?starting_after=${after}`}`);
    this.sources.set(id, source);
    let last = after;
    source.addEventListener("message", ({ data, lastEventId }) => {
      last = lastEventId || last;
      /** @type {Message} */
      const message = JSON.parse(data);
      this.onMessage(message);
      if (message.type === "completed" || message.type === "error") this.#leave(id, source);
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) this.#refused(id, source, last);
    });
  }

  /** @param {string} id @param {EventSource} source */
  #leave(id, source) {
    source.close();
    if (this.sources.get(id) === source) this.sources.delete(id);
  }

  /** The stream was refused, and the browser does not say why. @param {string} id @param {EventSource} source @param {string} last event that was read */
  async #refused(id, source, last) {
    if (this.sources.get(id) !== source) return;
    this.#leave(id, source);
    const asking = new AbortController();
    const answer = await fetch(`/playground/api/runs/${id}/events`, { signal: asking.signal }).then((response) => (response.ok ? null : response.json())).catch(() => null);
    asking.abort();
    if (answer?.error?.code !== "not_resumable") setTimeout(() => this.sources.has(id) || this.#follow(id, last), RETRY_MS[3]);
    else this.onMessage({ type: "error", id, error: { message: t("The answer cannot be picked up."), code: "not_resumable", param: null } });
  }
}
