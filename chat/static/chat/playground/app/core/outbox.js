// @ts-check
// What has to reach the server, in order. It is kept in the tab until the server has it, through reloads and lost networks.
// Every write is idempotent, by ids that the page has given.
import { signal } from "../../../vendor/preact.js";
import { api, ApiProblem } from "./api.js";
import { number, t } from "./i18n.js";
import { page } from "./page.js";

/** @import { PersonalStorage } from "./storage.js" */

const NAME = "outbox";
const RETRY_MS = [500, 1000, 2000, 5000];
/** Failures of the server at a write, after which it is dropped; one that does not reach the server is tried for ever. */
const MAX_FAILURES = 6;

/** Whether the same write may well succeed later: the server is away or full, or the person has to sign in again. @param {ApiProblem} problem */
const isPassing = (problem) => problem.isPassing || problem.status === 401 || problem.code === "rate_limit_exceeded";

/** @typedef {{method: string, path: string, body?: unknown, note?: unknown}} Write `note`: the sender's own, given back with the answer */

export class Outbox {
  /**
   * @param {PersonalStorage} storage
   * @param {{onDone: (write: Write, answer: any) => void, onRefused: (write: Write, problem: ApiProblem) => void}} listener
   */
  constructor(storage, listener) {
    this.storage = storage;
    this.listener = listener;
    /** @type {Write[]} */
    this.writes = storage.read("tab", NAME) ?? [];
    this.isSending = false;
    /** Of the first write. */
    this.numTries = 0;
    this.numFailures = 0;
    /** How many writes the server does not have yet. */
    this.numWaiting = signal(this.writes.length);
    addEventListener("online", () => this.flush());
  }

  /** @param {Write} write */
  add(write) {
    this.writes.push(write);
    this.#keep();
    this.flush();
  }

  /** Whether writes of a chat wait. @param {string} chat */
  holds(chat) {
    return this.writes.some(({ note }) => /** @type {{chat?: string} | undefined} */ (note)?.chat === chat);
  }

  async flush() {
    if (this.isSending) return;
    this.isSending = true;
    clearTimeout(this.retry);
    try {
      while (this.writes.length && (await this.#send(this.writes[0]))) {
        this.writes.shift();
        this.numTries = this.numFailures = 0;
        this.#keep();
      }
    } finally {
      this.isSending = false;
    }
  }

  /** Return whether the server has had its say. @param {Write} write */
  async #send(write) {
    if (JSON.stringify(write.body ?? "").length > page.max_body_bytes) {
      const message = t("it is larger than the {n} bytes that the server takes", { n: number(page.max_body_bytes) });
      this.listener.onRefused(write, new ApiProblem({ code: "request_too_large", message }));
      return true;
    }
    try {
      this.listener.onDone(write, await api(write.method, write.path, write.body));
      return true;
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      if (error.status === 500) this.numFailures += 1;
      if (isPassing(error) && this.numFailures < MAX_FAILURES) {
        this.retry = setTimeout(() => this.flush(), RETRY_MS[Math.min(this.numTries, RETRY_MS.length - 1)]);
        this.numTries += 1;
        return false;
      }
      this.listener.onRefused(write, error);
      return true;
    }
  }

  #keep() {
    this.storage.write("tab", NAME, this.writes.length ? this.writes : null);
    this.numWaiting.value = this.writes.length;
  }
}
