// The runs behind unfinished answers: started once, and attached to again after a reload or a lost connection. A run has the id of its answer.
//
// What arrives of a run always begins with its first event, so that an answer that is attached to is told anew. What is shown changes once
// that account has become as long: text that was shown never goes away.
import { endOf, grow, sizeOf } from "./answer.js";

const UNKNOWN = "not_resumable";
const KNOWN = "request_id_in_use";
const AWAY = new Set(["overloaded", "worker_lost"]);
const RETRY_MS = [1000, 2000, 4000];
const MAX_SENDS = 3;
const STOPPED_BEFORE = { message: "The request was stopped before it was sent.", code: "stopped" };

export class Runs {
  /** `maxBytes`: of a request; `onText(chat, message, delta)`: more was said; `onEnd(chat, message)`: it has ended, with `end` or `error`. */
  constructor(connection, maxBytes, { onText, onEnd }) {
    this.connection = connection;
    this.maxBytes = maxBytes;
    this.onText = onText;
    this.onEnd = onEnd;
    this.live = new Map();
  }

  /** Begin a run for an answer; it waits for the connection where there is none. */
  start(chat, message, request) {
    this.follow({ chat, message, request });
  }

  /** Take up the run of an answer that was begun before. */
  attach(chat, message) {
    if (!this.live.has(message.id)) this.follow({ chat, message, request: null });
  }

  follow(run) {
    this.live.set(run.message.id, { ...run, choices: [], isStopped: false, isSent: false, numSends: 0, numRetries: 0 });
    if (this.connection.isReady) this.call(run.message.id);
  }

  /** Called when the connection is there, for the first time or again. */
  connected() {
    for (const id of this.live.keys()) this.call(id);
  }

  /** Start or attach over the present connection. A request stays with its run until the server has answered, and is sent again only where the
   * server does not know the run: its id would be refused otherwise, so that nothing is ever computed twice. */
  call(id) {
    const run = this.live.get(id);
    run.choices = [];
    clearTimeout(run.retry);
    if (run.request && !run.isSent) this.send(id, run);
    else this.connection.send({ type: "attach", id });
    if (run.isStopped) this.connection.send({ type: "stop", id });
  }

  send(id, run) {
    const message = { type: "start", id, request: run.request };
    const numBytes = new TextEncoder().encode(JSON.stringify(message)).length;
    if (numBytes > this.maxBytes) {
      const error = `The chat is too long to be sent: ${numBytes.toLocaleString()} bytes, where ${this.maxBytes.toLocaleString()} may be. Begin a new one.`;
      this.finish(run, { error: { message: error, code: "request_too_large" } });
    } else if (run.numSends === MAX_SENDS) {
      this.finish(run, { error: { message: "The server could not be reached with this request.", code: "connection_lost" } });
    } else {
      run.isSent = true;
      run.numSends += 1;
      this.connection.send(message);
    }
  }

  stop(id) {
    const run = this.live.get(id);
    if (!run || run.isStopped) return;
    run.isStopped = true;
    if (this.connection.isReady) this.connection.send({ type: "stop", id });
    else if (run.request && !run.isSent) this.finish(run, { error: STOPPED_BEFORE });
  }

  receive(news) {
    const run = this.live.get(news.id);
    if (!run) return;
    const code = news.error?.code;
    if (run.request && !run.isStopped && (code === UNKNOWN || code === KNOWN)) {
      run.isSent = code === KNOWN;
      this.call(news.id);
      return;
    }
    // The run may well go on where its reader was lost; a run that has ended so says it again.
    if (!run.request && !run.isStopped && AWAY.has(code) && run.numRetries < RETRY_MS.length) {
      run.retry = setTimeout(() => this.connection.isReady && this.call(news.id), RETRY_MS[run.numRetries++]);
      return;
    }
    run.request = null;
    if (news.type === "waiting") this.wait(run, news);
    else if (news.type === "delta") this.grow(run, news);
    else if (news.type === "completed") this.complete(run, news);
    else if (news.type === "error") this.finish(run, { error: news.error });
  }

  /** Show what the run waits for; it is not kept. */
  wait(run, { state, phase, fraction, num_before: numBefore }) {
    const text = waitingText({ state, phase, fraction, numBefore });
    if (text !== run.message.waitsFor) {
      run.message.waitsFor = text;
      this.onText(run.chat, run.message, {});
    }
  }

  grow(run, news) {
    delete run.message.waitsFor;
    grow(run.choices, news);
    const isNew = run.choices === run.message.choices;
    if (!isNew && sizeOf(run.choices) < sizeOf(run.message.choices)) return;
    run.message.choices = run.choices;
    this.onText(run.chat, run.message, news);
  }

  complete(run, news) {
    run.message.choices = run.choices;
    this.finish(run, { end: endOf(run.choices, news) });
  }

  finish(run, result) {
    clearTimeout(run.retry);
    this.live.delete(run.message.id);
    delete run.message.waitsFor;
    Object.assign(run.message, result, { isRunning: false });
    this.onEnd(run.chat, run.message);
  }
}

/** Say what a run waits for; nothing while it is about to begin. */
function waitingText({ state, phase, fraction, numBefore }) {
  const queue = numBefore === 0 ? "" : numBefore === 1 ? "One request is before yours." : `${numBefore} requests are before yours.`;
  if (state === "loading") return `Loading the model: ${phase || "starting"}${fraction > 0 ? `, ${Math.round(100 * fraction)} %` : ""}. ${queue}`.trim();
  if (state === "unloaded") return `The model is about to be loaded. ${queue}`.trim();
  return queue;
}
