// Messages on the page. A view shows what its message and the page's state say, whenever it is told to; it keeps no state of the chat.
//
// The state that views are shown with: {isBusy, editing (id or null), isAway, versionsOf(message)}; what a reader does goes to the acts:
// {beginEdit, cancelEdit, sendEdit, regenerate, pickVersion, pickChoice}.
import { counters, hasText, shownOf } from "./answer.js";
import { CallsView, ThoughtsView } from "./asides.js";
import { copyWith } from "./clipboard.js";
import { EditForm } from "./editing.js";
import { button, element } from "./elements.js";
import { MarkdownView } from "./markdown.js";

function headOf(message, author) {
  const head = element("div", "message-head");
  const time = element("time", "", new Date(message.time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
  time.dateTime = message.time;
  head.append(element("span", "message-author", author), time);
  return head;
}

/** What is below a message. It is made anew only where it changes, so that the focus stays. */
class Foot {
  constructor() {
    this.node = element("div", "message-foot");
    this.shown = null;
  }

  show(state, make) {
    const shown = JSON.stringify(state);
    if (shown === this.shown) return;
    this.shown = shown;
    this.node.replaceChildren(...make());
  }
}

/** `‹ 2 of 3 ›`: the versions at one place of the chat. */
function versionSwitch(message, versions, acts) {
  const group = element("span", "versions");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "Versions");
  const at = versions.indexOf(message);
  const step = (sign, label, to) => {
    const node = button(sign, () => acts.pickVersion(versions[to], label), label);
    node.disabled = !versions[to];
    return node;
  };
  group.append(step("‹", "Earlier version", at - 1), element("span", "", `${at + 1} of ${versions.length}`), step("›", "Later version", at + 1));
  return group;
}

/** What can be done with a message: its versions, where it has some, and these buttons. */
function actsOf(message, versions, acts, ...buttons) {
  const group = element("span", "message-acts");
  if (versions.length > 1) group.append(versionSwitch(message, versions, acts));
  group.append(...buttons);
  return group;
}

function copyButton(text) {
  const copy = button("Copy", () => copyWith(copy, text()));
  return copy;
}

export class QuestionView {
  constructor(message, acts) {
    this.acts = acts;
    this.node = element("li", "message message-user");
    this.body = element("div", "message-body");
    this.foot = new Foot();
    this.form = null;
    this.node.append(headOf(message, "You"), this.body, this.foot.node);
  }

  show(message, state) {
    if (this.body.textContent !== message.content) this.body.textContent = message.content;
    this.showForm(message, state.editing === message.id);
    const versions = state.versionsOf(message);
    this.foot.show([versions.map(({ id }) => id), state.isBusy], () => {
      const edit = button("Edit", () => this.acts.beginEdit(message));
      edit.disabled = state.isBusy;
      return [actsOf(message, versions, this.acts, edit, copyButton(() => message.content))];
    });
  }

  showForm(message, isEditing) {
    this.node.classList.toggle("is-editing", isEditing);
    this.body.hidden = this.foot.node.hidden = isEditing;
    if (!isEditing) {
      this.form?.node.remove();
      this.form = null;
    } else if (!this.form) {
      this.form = new EditForm(message.content, { onSend: (text) => this.acts.sendEdit(message, text), onCancel: this.acts.cancelEdit });
      this.node.insertBefore(this.form.node, this.foot.node);
      this.form.begin();
    }
  }
}

export class AnswerView {
  constructor(message, acts) {
    this.acts = acts;
    this.node = element("li", "message message-assistant");
    this.tabs = new Foot();
    this.tabs.node.className = "choices";
    this.thoughts = new ThoughtsView();
    this.body = element("div", "message-body prose");
    this.markdown = new MarkdownView(this.body);
    this.calls = new CallsView();
    this.pending = element("div", "pending");
    this.pending.append(element("span"), element("span"), element("span"));
    this.waitsFor = element("p", "waits-for");
    this.waiting = element("p", "waiting", "The connection is lost. The answer goes on at the server and is shown here as soon as it is back.");
    this.trouble = new Foot();
    this.trouble.node.className = "message-error";
    this.trouble.node.setAttribute("role", "alert");
    this.foot = new Foot();
    this.node.append(headOf(message, "Assistant"), this.tabs.node, this.thoughts.node, this.body, this.calls.node);
    this.node.append(this.pending, this.waitsFor, this.waiting, this.trouble.node, this.foot.node);
  }

  show(message, state) {
    const choice = shownOf(message);
    const isRunning = Boolean(message.isRunning);
    this.showTabs(message);
    this.thoughts.show(choice.reasoning, isRunning && !choice.content && choice.calls.length === 0);
    this.markdown.show(choice.content, !isRunning);
    this.calls.show(choice.calls, !isRunning);
    this.pending.hidden = !isRunning || state.isAway || hasText(message);
    this.waitsFor.hidden = this.pending.hidden || !message.waitsFor;
    if (this.waitsFor.textContent !== (message.waitsFor ?? "")) this.waitsFor.textContent = message.waitsFor ?? "";
    this.waiting.hidden = !isRunning || !state.isAway;
    this.showTrouble(message, state);
    this.showFoot(message, state);
  }

  showTabs(message) {
    const { choices, shown } = message;
    this.tabs.node.hidden = choices.length < 2;
    this.tabs.node.setAttribute("role", "group");
    this.tabs.node.setAttribute("aria-label", "Answers; the chat goes on with the one that is shown");
    this.tabs.show([choices.length, shown], () =>
      choices.map((_, number) => {
        const tab = button(`Answer ${number + 1}`, () => this.acts.pickChoice(message, number));
        tab.setAttribute("aria-pressed", String(number === shown));
        return tab;
      }),
    );
  }

  showTrouble(message, state) {
    const { error } = message;
    this.trouble.node.hidden = !error;
    this.trouble.show([error, state.isBusy], () => {
      if (!error) return [];
      const parts = [element("div", "", error.message)];
      const details = [error.code, error.param].filter(Boolean).join(" · ");
      if (details) parts.push(element("code", "", details));
      const again = button("Try again", () => this.acts.regenerate(message));
      again.disabled = state.isBusy;
      return [...parts, element("div"), again];
    });
  }

  showFoot(message, state) {
    const versions = state.versionsOf(message);
    const { isRunning, end, shown } = message;
    const text = shownOf(message).content;
    this.foot.show([isRunning, end, Boolean(text), shown, versions.map(({ id }) => id), state.isBusy], () => {
      const buttons = [];
      if (text && !isRunning) buttons.push(copyButton(() => shownOf(message).content));
      if (end) {
        const again = button("Regenerate", () => this.acts.regenerate(message));
        again.disabled = state.isBusy;
        buttons.push(again);
      }
      const told = element("span", "message-counters");
      if (end) told.append(...counters(message).map((counter) => element("span", "", counter)));
      return [actsOf(message, versions, this.acts, ...buttons), told];
    });
  }
}
