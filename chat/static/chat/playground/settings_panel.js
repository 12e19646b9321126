// The parameters beside the chat, or below 900 px in a sheet over it.
const $ = (id) => document.getElementById(id);

export class SettingsPanel {
  constructor() {
    this.narrow = matchMedia("(max-width: 900px)");
    this.show(!this.narrow.matches);
    this.narrow.addEventListener("change", () => this.show(!this.narrow.matches));
    $("settings-toggle").addEventListener("click", () => (this.isOpen ? this.close() : this.open()));
    $("settings-close").addEventListener("click", () => this.close());
  }

  get isOpen() {
    return $("settings-toggle").getAttribute("aria-expanded") === "true";
  }

  get isSheetOpen() {
    return this.isOpen && this.narrow.matches;
  }

  open() {
    this.show(true);
    if (this.narrow.matches) $("system").focus();
  }

  close() {
    this.show(false);
    $("settings-toggle").focus();
  }

  show(isOpen) {
    const isSheet = this.narrow.matches;
    $("settings").classList.toggle("is-open", isSheet && isOpen);
    document.querySelector(".workspace").classList.toggle("is-settings-closed", !isSheet && !isOpen);
    $("settings-toggle").setAttribute("aria-expanded", String(isOpen));
  }
}
