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
const AGAIN_MS = 120_000; // between tries of a socket where none gets through

/**
 * @typedef {"connecting" | "ready" | "lost"} ConnectionState
 * @typedef {{onState: (state: ConnectionState) => void, onMessage: (message: Message) => void}} Listener
 */

/** A socket, or after some vain tries events over HTTP, if the server answers there, until a socket holds again. Begins with `open`. */
export class Connection {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    this.failures = 0;
    this.wasEverReady = false;
    this.openedAt = Infinity;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.events = new EventRoute(listener.onMessage);
    /** Whether new runs go over HTTP. */
    this.isByEvents = false;
    /** A socket that shall show whether one gets through by now. @type {WebSocket | null} */
    this.trial = null;
    this.triedAt = 0;
    addEventListener("online", () => this.#tryAgain(0));
    document.addEventListener("visibilitychange", () => document.hidden || this.#tryAgain(AGAIN_MS));
  }

  open() {
    this.listener.onState("connecting");
    this.openedAt = Infinity;
    const socket = newSocket();
    socket.addEventListener("open", () => {
      this.openedAt = performance.now();
      this.wasEverReady = true;
      this.listener.onState("ready");
    });
    this.#use(socket);
  }

  /** @param {WebSocket} socket */
  #use(socket) {
    this.socket = socket;
    socket.addEventListener("message", (event) => this.listener.onMessage(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => this.#lost(event.code));
  }

  /** Try a socket where none got through. Nothing waits for it: only one that holds is used, for new runs. @param {number} afterMs at the earliest, from the last try on */
  #tryAgain(afterMs) {
    const now = performance.now();
    if (!this.isByEvents || now - this.triedAt < afterMs) return;
    this.triedAt = now;
    this.trial?.close();
    const socket = newSocket();
    this.trial = socket;
    socket.addEventListener("open", () => setTimeout(() => this.#turnTo(socket), STEADY_MS));
  }

  /** @param {WebSocket} socket */
  #turnTo(socket) {
    if (socket !== this.trial || socket.readyState !== WebSocket.OPEN) return;
    this.trial = null;
    this.isByEvents = false;
    this.failures = 0;
    this.wasEverReady = true;
    this.openedAt = performance.now() - STEADY_MS;
    this.#use(socket);
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
      this.isByEvents = true;
      this.triedAt = performance.now();
      this.listener.onState("ready");
      return;
    }
    setTimeout(() => this.open(), RETRY_MS[Math.min(this.failures - 1, RETRY_MS.length - 1)]);
  }

  get isReady() {
    return this.isByEvents || this.socket?.readyState === WebSocket.OPEN;
  }

  /** @param {Message} message */
  send(message) {
    if (message.type === "start") this.#tryAgain(AGAIN_MS);
    if (this.isByEvents || this.events.has(message.id)) this.events.send(message);
    else this.socket?.send(JSON.stringify(message));
  }
}

const newSocket = () => new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/playground`);

async function isServerThere() {
  try {
    await api("GET", "state");
    return true;
  } catch (error) {
    return error instanceof ApiProblem && error.code !== "unreachable" && !error.isPassing; // a page of a proxy is no answer of the server
  }
}

/** @param {Message} message */
const isEnd = ({ type }) => type === "completed" || type === "error";

/** The messages of the socket over HTTP: a POST begins or stops a run, a stream of events tells of it. */
class EventRoute {
  /** @param {(message: Message) => void} onMessage */
  constructor(onMessage) {
    /** Runs whose ends were not told yet. @type {Set<string>} */
    this.runs = new Set();
    this.onMessage = (/** @type {Message} */ message) => {
      if (isEnd(message)) this.runs.delete(message.id);
      onMessage(message);
    };
    /** @type {Map<string, EventSource>} */
    this.sources = new Map();
    /** The last message of each run that the server does not have yet: the next one waits for it. @type {Map<string, Promise<void>>} */
    this.underWay = new Map();
    /** Runs that are stopped: their start is not sent again. @type {Set<string>} */
    this.stopped = new Set();
  }

  /** Whether a run is read here. @param {string} id */
  has(id) {
    return this.runs.has(id);
  }

  /** @param {Message} message */
  async send(message) {
    const { id } = message;
    this.runs.add(id);
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
      if (isEnd(message)) this.#leave(id, source);
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
