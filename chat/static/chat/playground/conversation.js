// A chat as data: a tree of messages, of which one path is shown. An edited question and a further answer stand beside what was there, so that
// nothing is ever removed for them. Knows neither the page nor storage.
//
// A message: {id, parent, role, time, …}; of a person also {content}; an answer is described in answer.js. `parent` of a first message is "".
import { freshId } from "./ids.js";
import { hasText, textOf } from "./answer.js";

const TITLE_CHARS = 60;

export class Conversation {
  constructor({ id = freshId(), changedAt = Date.now(), messages = [], picked = {} } = {}) {
    this.id = id;
    this.changedAt = changedAt;
    this.messages = messages;
    this.picked = picked; // by the id of a message: which of those that follow it is shown
  }

  /** What is kept of it. */
  plain() {
    return { id: this.id, changedAt: this.changedAt, messages: this.messages, picked: this.picked };
  }

  get isEmpty() {
    return this.messages.length === 0;
  }

  get title() {
    const first = this.messages.find((message) => message.role === "user")?.content ?? "Chat";
    const line = first.replace(/\s+/g, " ").trim();
    return line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS - 1)}…` : line;
  }

  /** The messages that are shown, from the first. */
  get path() {
    const path = [];
    const followers = byParent(this.messages);
    for (let id = ""; followers.has(id); id = path.at(-1).id) {
      const versions = followers.get(id);
      path.push(versions.find((message) => message.id === this.picked[id]) ?? versions.at(-1));
    }
    return path;
  }

  get last() {
    return this.path.at(-1) ?? null;
  }

  find(id) {
    return this.messages.find((message) => message.id === id) ?? null;
  }

  /** The message and those that stand at the same place, the oldest first. */
  versions(message) {
    return this.messages.filter((other) => other.parent === message.parent);
  }

  /** Put a message behind `parent` (null: at the beginning) and show it. */
  add(parent, fields) {
    const message = { id: freshId(), parent: parent?.id ?? "", time: new Date().toISOString(), ...fields };
    this.messages.push(message);
    this.pick(message);
    return message;
  }

  /** Show this one of its versions. */
  pick(message) {
    this.picked[message.parent] = message.id;
    this.changedAt = Date.now();
  }

  /** Remove a message that nothing follows: an answer that never said anything. */
  drop(message) {
    this.messages = this.messages.filter((other) => other !== message);
    if (this.picked[message.parent] === message.id) delete this.picked[message.parent];
  }

  /** How many of the shown messages come after this one. */
  numAfter(message) {
    const path = this.path;
    const index = path.indexOf(message);
    return index < 0 ? 0 : path.length - 1 - index;
  }

  /** What the model is told: the messages up to this one, which is the last. */
  historyTo(message) {
    const history = [];
    for (let at = message; at; at = this.find(at.parent)) {
      const content = at.role === "user" ? at.content : textOf(at);
      if (content) history.unshift({ role: at.role, content });
    }
    return history;
  }

  get unfinished() {
    return this.messages.filter((message) => message.isRunning);
  }

  /** Whether there is anything in the answer that somebody might miss. */
  isWorthKeeping(message) {
    return hasText(message) || this.messages.some((other) => other.parent === message.id);
  }
}

function byParent(messages) {
  const groups = new Map();
  for (const message of messages) {
    if (!groups.has(message.parent)) groups.set(message.parent, []);
    groups.get(message.parent).push(message);
  }
  return groups;
}
