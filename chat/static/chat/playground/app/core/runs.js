// @ts-check
// The runs behind unfinished answers: started once, and attached to again after a reload or a lost connection.
//
// What arrives of a run always begins with its first event, so that an answer that is attached to is told anew. What is shown changes once
// that account has become as long: text that was shown never goes away.
import { grow, sizeOf } from "./answers.js";
import { t } from "./i18n.js";
import { waitingText } from "./waiting.js";

/** @import { Connection } from "./connection.js" */
/** @import { Turn } from "./tree.js" */
/** @import { AnswerContent, Choice, Message, Problem, TurnFacts } from "./types.js" */

const UNKNOWN = "not_resumable";
const KNOWN = "request_id_in_use";
const AWAY = new Set(["overloaded", "worker_lost", "rate_limit_exceeded"]);
const RETRY_MS = [1000, 2000, 4000];
const MAX_SENDS = 3;

/**
 * @typedef {{from: number, to: number, length: number}} Thought `from`, `to`: in ms since 1970; `length`: of the reasoning by then
 *
 * @typedef {object} Live a run that is read
 * @property {Turn} turn
 * @property {object | null} request until the server has answered
 * @property {Choice[]} choices as told by the present reader
 * @property {(Thought | undefined)[]} thoughts when each choice was seen to think
 * @property {boolean} isFromBegin whether all of it was read as it came
 * @property {boolean} isStopped
 * @property {boolean} isSent
 * @property {number} numSends
 * @property {number} numRetries
 * @property {number | null} loadingSince when its model was first seen to load, in ms
 * @property {number} loadingS how long
 * @property {ReturnType<typeof setTimeout>} [retry]
 *
 * @typedef {object} RunListener
 * @property {(turn: Turn, message: Message) => void} onText something was said
 * @property {(turn: Turn) => void} onEnd the turn has ended or failed
 * @property {(turn: Turn, problem?: Problem) => void} onLost the run cannot be read any more
 */

export class Runs {
  /** @param {Connection} connection @param {number} maxBytes of a message @param {RunListener} listener */
  constructor(connection, maxBytes, listener) {
    this.connection = connection;
    this.maxBytes = maxBytes;
    this.listener = listener;
    /** @type {Map<string, Live>} */
    this.live = new Map();
  }

  /** Begin the run of a turn; it waits for the connection where there is none. @param {Turn} turn @param {object} request */
  start(turn, request) {
    this.#follow(turn, request);
  }

  /** Take up the run of a turn that was begun before. @param {Turn} turn */
  attach(turn) {
    if (turn.facts.run && !this.live.has(turn.facts.run)) this.#follow(turn, null);
  }

  /** @param {string} id */
  isLive(id) {
    return this.live.has(id);
  }

  /** Called when the connection is there, for the first time or again. */
  connected() {
    for (const id of this.live.keys()) this.#call(id);
  }

  /** @param {string} id */
  stop(id) {
    const run = this.live.get(id);
    if (!run || run.isStopped) return;
    run.isStopped = true;
    if (this.connection.isReady) this.connection.send({ type: "stop", id });
    else if (run.request && !run.isSent) this.#finish(id, run, failed(t("The request was stopped before it was sent."), "stopped"));
  }

  /** Forget a run, which goes on. @param {string} id */
  leave(id) {
    clearTimeout(this.live.get(id)?.retry);
    this.live.delete(id);
  }

  /** @param {Message} message */
  receive(message) {
    const run = this.live.get(message.id);
    if (!run) return;
    const code = message.error?.code;
    if (run.request && !run.isStopped && (code === UNKNOWN || code === KNOWN)) {
      run.isSent = code === KNOWN;
      this.#call(message.id);
      return;
    }
    // The run may well go on where its reader was lost; a run that has ended so says it again.
    if (!run.request && !run.isStopped && AWAY.has(code) && run.numRetries < RETRY_MS.length) {
      run.retry = setTimeout(() => this.connection.isReady && this.#call(message.id), RETRY_MS[run.numRetries++]);
      return;
    }
    const wasRead = run.request === null;
    run.request = null;
    this.#tell(run, message, wasRead);
  }

  /** @param {Live} run @param {Message} message @param {boolean} wasRead whether the server had answered before */
  #tell(run, message, wasRead) {
    const { turn } = run;
    if (message.type === "waiting") this.#waiting(run, message);
    else if (message.type === "resuming") this.#wait(turn, "", true);
    else if (message.type === "admitted") this.#admitted(run, message);
    else if (message.type === "delta") this.#grow(run, message);
    else if (message.type === "completed") this.#finish(message.id, run, ended(run, message));
    else if (message.type === "error" && message.error.code === UNKNOWN) this.#lose(message.id, turn);
    else if (message.type === "error" && wasRead && AWAY.has(message.error.code)) this.#lose(message.id, turn, message.error);
    else if (message.type === "error") this.#finish(message.id, run, { state: "failed", error: message.error, request_id: message.request_id ?? undefined });
  }

  /** @param {Turn} turn @param {object | null} request */
  #follow(turn, request) {
    const id = /** @type {string} */ (turn.facts.run);
    const thoughts = turn.choices.map(thoughtOf);
    this.live.set(id, { turn, request, choices: [], thoughts, isFromBegin: true, isStopped: false, isSent: false, numSends: 0, numRetries: 0, loadingSince: null, loadingS: 0 });
    if (this.connection.isReady) this.#call(id);
  }

  /** Start or attach over the present connection. A request stays with its run until the server has answered, and is sent again only where the
   * server does not know the run: its id would be refused otherwise, so that nothing is ever computed twice. @param {string} id */
  #call(id) {
    const run = /** @type {Live} */ (this.live.get(id));
    run.choices = [];
    clearTimeout(run.retry);
    if (run.request && !run.isSent) this.#send(id, run);
    else {
      run.isFromBegin = false;
      this.connection.send({ type: "attach", id });
    }
    if (run.isStopped) this.connection.send({ type: "stop", id });
  }

  /** @param {string} id @param {Live} run */
  #send(id, run) {
    const message = { type: "start", id, request: run.request };
    const numBytes = new TextEncoder().encode(JSON.stringify(message)).length;
    if (numBytes > this.maxBytes) {
      const text = t("The chat is too long to be sent: {n} bytes, where {max} may be. Begin a new one.", { n: numBytes, max: this.maxBytes });
      this.#finish(id, run, failed(text, "request_too_large"));
    } else if (run.numSends === MAX_SENDS) {
      this.#finish(id, run, failed(t("The server could not be reached with this request."), "connection_lost"));
    } else {
      run.isSent = true;
      run.numSends += 1;
      this.connection.send(message);
    }
  }

  /** @param {Live} run @param {Message} message */
  #waiting(run, message) {
    if (message.state === "loading" || message.state === "unloaded") run.loadingSince ??= performance.now();
    else endLoading(run);
    this.#wait(run.turn, waitingText(message), false);
  }

  /** @param {Turn} turn @param {string} text @param {boolean} isResuming */
  #wait(turn, text, isResuming) {
    turn.status.value = { ...turn.status.value, waitsFor: text, isResuming };
  }

  /** @param {Live} run @param {Message} message */
  #admitted(run, { prompt_tokens: num, max_tokens: reserve, seed }) {
    const { turn } = run;
    endLoading(run);
    turn.status.value = { ...turn.status.value, waitsFor: "", promptTokens: num, reserve };
    turn.change(seed == null ? {} : { seed });
  }

  /** @param {Live} run @param {Message} message */
  #grow(run, message) {
    const { turn } = run;
    if (turn.status.value.waitsFor || turn.status.value.isResuming) this.#wait(turn, "", false);
    grow(run.choices, message);
    if (message.reasoning) timeThought(run, message.choice);
    const isShown = run.choices === turn.choices;
    if (!isShown && sizeOf(run.choices) < sizeOf(turn.choices)) return;
    if (!isShown) turn.change({ content: { choices: run.choices, shown: 0 } });
    this.listener.onText(turn, message);
  }

  /** @param {string} id @param {Turn} turn @param {Problem} [problem] */
  #lose(id, turn, problem) {
    this.leave(id);
    this.listener.onLost(turn, problem);
  }

  /** @param {string} id @param {Live} run @param {Partial<TurnFacts>} facts */
  #finish(id, run, facts) {
    this.leave(id);
    this.#wait(run.turn, "", false);
    run.turn.change(facts);
    this.listener.onEnd(run.turn);
  }
}

/** @param {string} message @param {string} code @returns {Partial<TurnFacts>} */
const failed = (message, code) => ({ state: "failed", error: { message, code, param: null } });

/** What is known of the time of a choice's reasoning from before. @param {Choice} choice @returns {Thought | undefined} */
const thoughtOf = ({ reasoning, reasoning_at: at }) => at && { from: at[0], to: at[1], length: reasoning.length };

/** Note when a choice has thought. What is told again took no time, and a beginning that was not seen has none. @param {Live} run @param {number} at */
function timeThought({ choices, thoughts, isFromBegin }, at) {
  const { length } = choices[at].reasoning;
  const now = Date.now();
  if (isFromBegin) thoughts[at] ??= { from: now, to: now, length };
  const thought = thoughts[at];
  if (!thought) return;
  if (length > thought.length) Object.assign(thought, { to: now, length });
  choices[at].reasoning_at = [thought.from, thought.to];
}

/** @param {Live} run */
function endLoading(run) {
  if (run.loadingSince !== null) run.loadingS += (performance.now() - run.loadingSince) / 1000;
  run.loadingSince = null;
}

/** What the server says of the end. @param {Live} run @param {Message} message @returns {Partial<TurnFacts>} */
function ended({ choices, loadingS }, message) {
  const { choices: ends, outcome, usage, timings, cost, request_id, seed, attempts, log_url, prompt_logprobs } = message;
  for (const [at, { finish_reason, tokens, stop }] of ends.entries()) {
    if (!choices[at]) grow(choices, { type: "delta", id: "", choice: at, text: "" });
    Object.assign(choices[at], { finish_reason, tokens }, stop == null ? {} : { stop });
  }
  /** @type {AnswerContent} */
  const content = { choices, shown: 0, ...(prompt_logprobs ? { prompt_logprobs } : {}) };
  const more = { ...(loadingS ? { loading_s: loadingS } : {}), ...(attempts > 1 ? { attempts } : {}), ...(log_url ? { log_url } : {}) };
  const facts = { state: /** @type {const} */ ("ended"), content, outcome, usage, timings: { ...timings, ...more }, cost: cost ?? undefined, request_id };
  return seed == null ? facts : { ...facts, seed };
}
