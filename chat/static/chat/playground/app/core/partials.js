// @ts-check
// What was shown of running answers, kept in the tab while its page goes: the server has it in the log of the run, unless that is lost.
import { sizeOf } from "./answers.js";

/** @import { Chat } from "./chat.js" */
/** @import { PersonalStorage } from "./storage.js" */

const NAME = "partials";

/** @param {PersonalStorage} storage @param {Iterable<Chat>} chats */
export function keepPartials(storage, chats) {
  const running = [...chats].filter((open) => !open.isTemporary).flatMap((open) => open.running.value);
  storage.write("tab", NAME, Object.fromEntries(running.map((turn) => [turn.id, turn.choices])));
}

/** Show again what was shown. @param {PersonalStorage} storage @param {Chat} open */
export function restorePartials(storage, open) {
  const kept = storage.read("tab", NAME) ?? {};
  for (const turn of open.running.value) {
    const choices = kept[turn.id];
    if (choices && sizeOf(choices) > sizeOf(turn.choices)) turn.change({ content: { choices, shown: 0 } });
  }
}
