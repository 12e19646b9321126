// The parameters panel. A field that is left empty is not sent: it shows what the model then does, and whatever is written is sent. Values live in
// the browser, for their person.
import { button, element } from "./elements.js";

const NAMES = ["system", "temperature", "top_p", "max_tokens", "seed", "further"];
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];
const WITH_SLIDER = ["temperature", "top_p"];
const OF_THE_PAGE = { messages: "messages is the chat itself", model: "the model is picked above the chat" };
const KEEP = "parameters";

export class Settings {
  /** `fields`: names that a request may have; `defaultsOf()`: of the model that is picked, by the names of fields. */
  constructor(store, fields, defaultsOf) {
    this.store = store;
    this.fields = new Set(fields);
    this.defaultsOf = defaultsOf;
    this.inputs = Object.fromEntries(NAMES.map((name) => [name, document.getElementById(name)]));
    this.sliders = Object.fromEntries(WITH_SLIDER.map((name) => [name, document.getElementById(`${name}-range`)]));
    const kept = store.readShared(KEEP) ?? {};
    for (const [name, input] of Object.entries(this.inputs)) {
      input.value = kept[name] ?? "";
      input.addEventListener("input", () => this.changed());
    }
    for (const [name, slider] of Object.entries(this.sliders)) slider.addEventListener("input", () => this.set(name, slider.value));
    for (const name of NAMES) this.addReset(name);
    document.getElementById("settings-reset").addEventListener("click", () => {
      for (const input of Object.values(this.inputs)) input.value = "";
      this.changed();
    });
    this.show();
  }

  addReset(name) {
    const reset = button("Reset", () => {
      this.set(name, "");
      this.inputs[name].focus();
    });
    reset.classList.add("field-reset");
    const label = document.querySelector(`label[for="${name}"]`);
    reset.setAttribute("aria-label", `Reset ${label.textContent}`);
    label.after(reset);
  }

  set(name, value) {
    this.inputs[name].value = value;
    this.changed();
  }

  changed() {
    this.store.writeShared(KEEP, Object.fromEntries(NAMES.map((name) => [name, this.inputs[name].value])));
    this.show();
  }

  /** Show values, and for what is empty the default of the model. Called again when another model is picked. */
  show() {
    const defaults = this.defaultsOf();
    const { temperature, top_p: topP, max_completion_tokens: maxTokens, ...others } = defaults;
    const hints = { temperature, top_p: topP, max_tokens: maxTokens ?? "rest of the context", seed: "random" };
    for (const [name, hint] of Object.entries(hints)) this.inputs[name].placeholder = hint ?? "";
    for (const [name, slider] of Object.entries(this.sliders)) slider.value = this.inputs[name].value || hints[name];
    this.showOthers(others);
    this.inputs.further.setCustomValidity(this.furtherProblem);
    for (const input of Object.values(this.inputs)) {
      const field = input.closest(".field");
      field.classList.toggle("is-set", input.value !== "");
      field.classList.toggle("is-wrong", !input.checkValidity());
    }
    document.getElementById("further-problem").textContent = this.furtherProblem;
  }

  /** Defaults that no control of the panel shows. */
  showOthers(others) {
    const list = document.getElementById("other-defaults");
    const names = Object.keys(others);
    list.hidden = names.length === 0;
    list.replaceChildren("Defaults of the model: ", ...names.map((name) => element("code", "", `${name} ${others[name]}`)));
  }

  /** The first field the browser finds wrong, or null. */
  get wrongField() {
    return Object.values(this.inputs).find((input) => !input.checkValidity()) ?? null;
  }

  get systemPrompt() {
    return this.inputs.system.value.trim();
  }

  /** What is wrong with the further fields, or "". */
  get furtherProblem() {
    const fields = this.furtherFields;
    if (!fields) return 'Must be one JSON object, such as {"top_k": 5}.';
    for (const name of Object.keys(fields)) {
      if (Object.hasOwn(OF_THE_PAGE, name)) return `${OF_THE_PAGE[name]}; leave it out.`;
      if (NUMBERS.includes(name) && this.inputs[name].value !== "") return `${name} is set above already; leave one of them out.`;
      if (!this.fields.has(name)) return `${name} is no field that the playground can send; check its spelling or leave it out.`;
    }
    return "";
  }

  /** Any other fields of the request, as the reader wrote them; null while they are no JSON object. */
  get furtherFields() {
    try {
      const fields = JSON.parse(this.inputs.further.value.trim() || "{}");
      return fields !== null && typeof fields === "object" && !Array.isArray(fields) ? fields : null;
    } catch {
      return null;
    }
  }

  /** The fields that are set; the numbers as numbers. */
  get parameters() {
    const set = NUMBERS.filter((name) => this.inputs[name].value !== "");
    return { ...Object.fromEntries(set.map((name) => [name, Number(this.inputs[name].value)])), ...this.furtherFields };
  }

  /** Put the cursor on the field that an error names (`tools.0.function` is in `tools`). */
  focus(param) {
    const name = String(param ?? "").split(".")[0];
    const input = name in (this.furtherFields ?? {}) ? this.inputs.further : this.inputs[name];
    if (!input) return;
    input.closest(".field").classList.add("is-wrong");
    input.focus();
  }
}
