// @ts-check
// The turns of a conversation: a tree of which one path is shown. An edited question and another answer stand beside what was there, so that
// nothing is ever removed for them.
import { computed, signal } from "../../../vendor/preact.js";
import { isAnswer } from "./answers.js";

/** @import { TurnFacts } from "./types.js" */

/**
 * @typedef {{waitsFor: string, isResuming: boolean, promptTokens?: number, reserve?: number}} RunStatus
 *   `waitsFor`: in words; `reserve`: the most tokens of its answer
 */

export class Turn {
  /** @type {TurnFacts} */
  #facts;
  /** Counts changes. */
  #revision = signal(0);

  /** @param {TurnFacts} facts */
  constructor(facts) {
    this.#facts = facts;
    /** Which of its choices is shown while nothing follows it. */
    this.shown = signal(isAnswer(facts.content) ? facts.content.shown : 0);
    /** What is known of its run while it goes on; kept nowhere. @type {import("../../../vendor/preact.js").Signal<RunStatus>} */
    this.status = signal({ waitsFor: "", isResuming: false });
  }

  get id() {
    return this.#facts.id;
  }

  /** What shows them is drawn again with each change. */
  get facts() {
    this.#revision.value; // read, so that a change is noticed
    return this.#facts;
  }

  get isRunning() {
    return this.facts.state === "begun";
  }

  /** The choices of an answer, empty for other turns. */
  get choices() {
    return isAnswer(this.facts.content) ? this.facts.content.choices : [];
  }

  /** Change facts, and draw what shows them. @param {Partial<TurnFacts>} [facts] */
  change(facts = {}) {
    Object.assign(this.#facts, facts);
    this.#revision.value = this.#revision.peek() + 1;
  }
}

export class Tree {
  constructor() {
    /** @type {Map<string, Turn>} */
    this.turns = new Map();
    /** @type {Map<string, Turn[]>} */
    this.followers = new Map();
    /** The last turn that is shown, "" for none. */
    this.head = signal("");
    this.revision = signal(0);
    this.path = computed(() => {
      this.revision.value; // read, so that a change is noticed
      return this.pathTo(this.head.value);
    });
  }

  /** @param {string} id */
  find(id) {
    return this.turns.get(id);
  }

  /** The turns from the first to this one. @param {string} id */
  pathTo(id) {
    /** @type {Turn[]} */
    const path = [];
    for (let turn = this.turns.get(id); turn; turn = this.turns.get(turn.facts.parent)) path.push(turn);
    return path.reverse();
  }

  /** @param {TurnFacts} facts */
  add(facts) {
    const turn = new Turn(facts);
    this.turns.set(turn.id, turn);
    const beside = this.followers.get(facts.parent);
    if (beside) beside.push(turn);
    else this.followers.set(facts.parent, [turn]);
    this.revision.value += 1;
    return turn;
  }

  /** Remove a turn that nothing follows. @param {Turn} turn */
  drop(turn) {
    this.turns.delete(turn.id);
    this.followers.set(turn.facts.parent, this.siblings(turn).filter((other) => other !== turn));
    if (this.head.value === turn.id) this.head.value = turn.facts.parent;
    this.revision.value += 1;
  }

  /** The turn and those at the same place, the oldest first. @param {Turn} turn */
  siblings(turn) {
    return this.followers.get(turn.facts.parent) ?? [];
  }

  /** Show this turn, and what came last after it. @param {Turn} turn */
  show(turn) {
    let last = turn;
    for (let next = this.followers.get(last.id); next?.length; next = this.followers.get(last.id)) last = /** @type {Turn} */ (next.at(-1));
    this.head.value = last.id;
  }

  /** Which choice of an answer is shown: the one that the next turn of the path follows. @param {Turn} turn */
  shownChoice(turn) {
    const path = this.path.value;
    const next = path[path.indexOf(turn) + 1];
    return next && path.includes(turn) ? (next.facts.choice ?? 0) : turn.shown.value;
  }
}
