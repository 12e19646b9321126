// @ts-check
// What this browser keeps for one person, by names that carry the person's id. Whatever belongs to anybody else is removed when a page opens,
// and everything when its person signs out.
const PREFIX = "lightcone.";
const OF_NOBODY = new Set(["lightcone.theme"]);
const SIGNED_OUT = "lightcone.signed-out";
const [LEAVES, HAS_LEFT] = ["leaves", "has left"];

/** @typedef {"tab" | "browser"} Place */

export class PersonalStorage {
  /** @param {number} user @param {() => void} onSignedOut another tab has signed this person out */
  constructor(user, onSignedOut) {
    this.own = `${PREFIX}${user}.`;
    this.isClosed = false;
    this.#remove((key) => !key.startsWith(this.own));
    addEventListener("storage", (event) => {
      if (event.key !== SIGNED_OUT || event.newValue === null) return;
      this.close();
      if (event.newValue === HAS_LEFT) onSignedOut();
    });
  }

  /** @param {Place} place @param {string} name */
  read(place, name) {
    try {
      return JSON.parse(storageOf(place)?.getItem(this.own + name) ?? "null");
    } catch {
      return null;
    }
  }

  /** Keep a value, or remove it if null; false where the browser does not. @param {Place} place @param {string} name @param {unknown} value */
  write(place, name, value) {
    const storage = storageOf(place);
    if (this.isClosed || !storage) return false;
    try {
      if (value === null) storage.removeItem(this.own + name);
      else storage.setItem(this.own + name, JSON.stringify(value));
      return true;
    } catch {
      return false; // forbidden or full
    }
  }

  /** This person signs out: nothing of theirs stays, nothing is written any more, and their other tabs hear of it. */
  signOut() {
    this.close();
    tell(LEAVES);
    // Others are reloaded as this page goes, which is with the server's answer: sooner they would still be signed in.
    addEventListener("pagehide", () => tell(HAS_LEFT));
  }

  close() {
    this.isClosed = true;
    this.#remove(() => true);
  }

  /** @param {(key: string) => boolean} isUnwanted */
  #remove(isUnwanted) {
    for (const storage of [storageOf("tab"), storageOf("browser")]) {
      for (const key of Object.keys(storage ?? {})) {
        if (key.startsWith(PREFIX) && !OF_NOBODY.has(key) && isUnwanted(key)) storage?.removeItem(key);
      }
    }
  }
}

/** Tell the other tabs. @param {string} what */
function tell(what) {
  const shared = storageOf("browser");
  shared?.setItem(SIGNED_OUT, what);
  shared?.removeItem(SIGNED_OUT);
}

/** The storage, or null where the browser forbids it. @param {Place} place @returns {Storage | null} */
function storageOf(place) {
  try {
    return place === "tab" ? sessionStorage : localStorage;
  } catch {
    return null;
  }
}
