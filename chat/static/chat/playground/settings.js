// The parameters panel. Values live in the browser, per reader; a value that differs from its default is marked.
const DEFAULTS = { system: "", temperature: "1", top_p: "1", max_tokens: "", seed: "", further: "" };
const KEY = "lightcone.parameters";

export class Settings {
  constructor() {
    this.inputs = Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, document.getElementById(name)]));
    let saved = {};
    try {
      saved = JSON.parse(localStorage.getItem(KEY)) || {};
    } catch {
      /* unreadable or forbidden storage: defaults */
    }
    for (const [name, input] of Object.entries(this.inputs)) {
      input.value = saved[name] ?? DEFAULTS[name];
      input.addEventListener("input", () => this.changed());
      const range = document.getElementById(`${name}-range`);
      range?.addEventListener("input", () => {
        input.value = range.value;
        this.changed();
      });
    }
    document.getElementById("settings-reset").addEventListener("click", () => {
      for (const [name, input] of Object.entries(this.inputs)) input.value = DEFAULTS[name];
      this.changed();
    });
    this.changed();
  }

  changed() {
    const values = {};
    this.inputs.further.setCustomValidity(this.furtherFields ? "" : "Must be one JSON object, such as {\"top_k\": 5}.");
    for (const [name, input] of Object.entries(this.inputs)) {
      values[name] = input.value;
      const field = input.closest(".field");
      field.classList.toggle("is-changed", input.value !== DEFAULTS[name]);
      field.classList.toggle("is-wrong", !input.checkValidity());
      const range = document.getElementById(`${name}-range`);
      if (range) range.value = input.value;
    }
    try {
      localStorage.setItem(KEY, JSON.stringify(values));
    } catch {
      /* private mode */
    }
  }

  /** The first field the browser finds wrong, or null. */
  get wrongField() {
    return Object.values(this.inputs).find((input) => !input.checkValidity()) ?? null;
  }

  get systemPrompt() {
    return this.inputs.system.value.trim();
  }

  /** Any other fields of the request, as the reader wrote them; null while they are no JSON object. */
  get furtherFields() {
    try {
      const fields = JSON.parse(this.inputs.further.value.trim() || "{}");
      return typeof fields === "object" && !Array.isArray(fields) ? fields : null;
    } catch {
      return null;
    }
  }

  /** Only what differs from the defaults travels, as numbers; a field written out as JSON wins over its control. */
  get parameters() {
    const request = {};
    for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
      const value = this.inputs[name].value;
      if (value !== "" && value !== DEFAULTS[name]) request[name] = Number(value);
    }
    return { ...request, ...this.furtherFields };
  }

  /** Put the cursor on the field that an error names (`tools.0.function` is in `tools`). */
  focus(param) {
    const name = String(param ?? "").split(".")[0];
    const input = name in (this.furtherFields ?? {}) ? this.inputs.further : this.inputs[name];
    if (!input) return false;
    input.closest(".field").classList.add("is-wrong");
    input.focus();
    return true;
  }
}
