// What this browser keeps for one person, by names that carry the person's id: chats, the draft and the model in the tab, parameters for all
// tabs. Whatever belongs to anybody else is removed when a page opens, and everything when its person signs out.
const PREFIX = "lightcone.";
const OF_NOBODY = new Set(["lightcone.theme"]);
const SIGNED_OUT = "lightcone.signed-out";

export class Store {
  /** `onSignedOut`: another tab has signed this person out. */
  constructor(user, onSignedOut) {
    this.own = `${PREFIX}${user}.`;
    this.isClosed = false;
    this.remove((key) => !key.startsWith(this.own));
    addEventListener("storage", (event) => {
      if (event.key !== SIGNED_OUT || event.newValue === null) return;
      this.close();
      onSignedOut();
    });
  }

  /** A value in the tab, or null. */
  read(name) {
    return readJson(storageOf("sessionStorage"), this.own + name);
  }

  /** Keep a value in the tab; false where the browser does not. */
  write(name, value) {
    return !this.isClosed && writeJson(storageOf("sessionStorage"), this.own + name, value);
  }

  /** A value for all tabs of this browser, or null. */
  readShared(name) {
    return readJson(storageOf("localStorage"), this.own + name);
  }

  writeShared(name, value) {
    return !this.isClosed && writeJson(storageOf("localStorage"), this.own + name, value);
  }

  /** The names in the tab that begin so. */
  names(start) {
    return keysOf(storageOf("sessionStorage"))
      .filter((key) => key.startsWith(this.own + start))
      .map((key) => key.slice(this.own.length));
  }

  forget(name) {
    storageOf("sessionStorage")?.removeItem(this.own + name);
  }

  /** This person signs out: nothing of theirs stays, nothing is written any more, and their other tabs hear of it. */
  signOut() {
    this.close();
    const shared = storageOf("localStorage");
    writeJson(shared, SIGNED_OUT, Date.now());
    shared?.removeItem(SIGNED_OUT);
  }

  close() {
    this.isClosed = true;
    this.remove(() => true);
  }

  remove(isUnwanted) {
    for (const storage of [storageOf("sessionStorage"), storageOf("localStorage")]) {
      for (const key of keysOf(storage)) {
        if (key.startsWith(PREFIX) && !OF_NOBODY.has(key) && isUnwanted(key)) storage.removeItem(key);
      }
    }
  }
}

/** The storage, or null where the browser forbids it. */
function storageOf(kind) {
  try {
    return globalThis[kind];
  } catch {
    return null;
  }
}

const keysOf = (storage) => (storage ? Object.keys(storage) : []);

function readJson(storage, key) {
  try {
    return JSON.parse(storage.getItem(key));
  } catch {
    return null;
  }
}

function writeJson(storage, key, value) {
  try {
    storage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false; // forbidden or full
  }
}
