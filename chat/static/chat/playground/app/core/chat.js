// @ts-check
// A conversation that is open in the page: its tree, settings and draft. What is done with it is in acts.js.
import { computed, signal } from "../../../vendor/preact.js";
import { freshId } from "./ids.js";
import { turnFrom } from "./stored.js";
import { Tree } from "./tree.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { ChatFacts, ChatSettings, Draft, Measure } from "./types.js" */

/** @param {Measure | null} measure */
const excessOf = (measure) => (measure && !measure.isEstimate ? Math.max(0, measure.prompt + (measure.reserve || 1) - measure.context) : 0);

export class Chat extends Tree {
  /**
   * @param {ChatSettings} settings
   * @param {{id?: string, isTemporary?: boolean}} [options] `isTemporary`: it is never stored
   */
  constructor(settings, { id = freshId(), isTemporary = false } = {}) {
    super();
    this.id = id;
    this.isTemporary = isTemporary;
    /** Whether the server has it, or is about to. */
    this.isStored = false;
    this.version = 1;
    this.title = signal("");
    this.folder = signal("");
    /** @type {Signal<ChatSettings>} */
    this.settings = signal(settings);
    /** @type {Signal<Draft>} */
    this.draft = signal({ text: "" });
    /** What would be sent now, as far as it was counted. @type {Signal<Measure | null>} */
    this.measure = signal(null);
    /** By how many tokens that is too long for the model; it is not sent then. */
    this.excess = computed(() => excessOf(this.measure.value));
    /** Why a text that is in the message box again was refused. @type {Signal<{text: string, settings: ChatSettings, message: string} | null>} */
    this.refusal = signal(null);
    /** Whether its message waits to be counted before it is sent. */
    this.isCounting = signal(false);
    this.running = computed(() => {
      this.revision.value; // read, so that a change is noticed
      return [...this.turns.values()].filter((turn) => turn.isRunning);
    });
    this.isBusy = computed(() => this.running.value.length > 0);
    this.isEmpty = computed(() => this.path.value.length === 0);
  }

  /** Take over what the server knows of the conversation, without its turns. @param {ChatFacts} facts */
  adopt(facts) {
    this.isStored = true;
    this.version = facts.version;
    this.title.value = facts.title;
    this.folder.value = facts.folder;
  }

  /**
   * Take over turns that others have added or ended, and return those that are new here. A turn whose run is read here stays as it is.
   * @param {Record<string, any>[]} stored
   * @param {(id: string) => boolean} isLive
   */
  merge(stored, isLive) {
    const added = [];
    for (const one of stored) {
      const known = this.turns.get(one.id);
      if (!known) added.push(this.add(turnFrom(one)));
      else if (known.isRunning && one.state !== "begun" && !isLive(one.run ?? "")) known.change(turnFrom(one));
    }
    return added;
  }
}
