// @ts-check
// The list of keys, where they can be changed.
import { html, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { Dialog, IconButton } from "../view/controls.js";
import { closeDialog, openDialog } from "../view/layers.js";
import { keysOf } from "./bindings.js";
import { preferences, prefer } from "./preferences.js";
import { isLetter, refusal, shown, strokeOf } from "./strokes.js";

/** @import { Act } from "./bindings.js" */

const SECOND_KEY_MS = 900;

/** @param {Act[]} all */
export const showKeys = (all) => openDialog(() => html`<${KeysDialog} all=${all} />`);

/** @param {{all: Act[]}} props */
function KeysDialog({ all }) {
  const { enterSends, letters, speaks, bound } = preferences.value;
  const [problem, setProblem] = useState("");
  const check = (/** @type {keyof import("./preferences.js").Preferences} */ name, /** @type {boolean} */ isOn, /** @type {string} */ label) =>
    html`<label class="check"><input type="checkbox" id=${`keys-${name}`} checked=${isOn} onChange=${(/** @type {any} */ event) => prefer({ [name]: event.target.checked })} />${label}</label>`;
  return html`<${Dialog} title=${t("Keys")} class="keys" onClose=${closeDialog}>
    <div class="keys-choices">
      ${check("enterSends", enterSends, t("Enter sends, Shift+Enter begins a line; else Enter begins a line, and {keys} sends", { keys: shown("Mod+Enter") }))}
      ${check("letters", letters, t("Single letters do something outside of text fields"))}
      ${check("speaks", speaks, t("Speak answers to screen readers while they are written"))}
    </div>
    <p class="hint">${t("Press a key's button to choose others; Delete switches them off. Keys of messages, of tokens and of chats in the list act where one of them has the focus.")}</p>
    <p class="problem" role="alert">${problem}</p>
    <table class="keys-table">
      <thead><tr><th scope="col">${t("Act")}</th><th scope="col">${t("Keys")}</th></tr></thead>
      <tbody>
        <tr><td>${t("Close the top layer, else stop the answer")}</td><td class="keys-cell"><span class="hint">${t("fixed")}</span> <kbd>Esc</kbd></td></tr>
        ${all.map((act) => html`<tr key=${act.id}><td>${act.title()}</td><td class="keys-cell">
          <${KeyButton} all=${all} act=${act} onProblem=${setProblem} />
          ${act.id in bound && html`<${IconButton} icon="again" size=${14} label=${t("Usual keys of: {act}", { act: act.title() })} onClick=${() => setProblem(rebind(all, act, act.keys ?? ""))} />`}
        </td></tr>`)}
      </tbody>
    </table>
    <div class="dialog-acts"><button type="button" class="button button-small" disabled=${Object.keys(bound).length === 0} onClick=${() => (setProblem(""), prefer({ bound: {} }))}>${t("Usual keys for all")}</button></div>
  <//>`;
}

/** Listens for new keys once it is pressed. @param {{all: Act[], act: Act, onProblem: (text: string) => void}} props */
function KeyButton({ all, act, onProblem }) {
  const [strokes, setStrokes] = useState(/** @type {string[] | null} */ (null));
  const [timer, setTimer] = useState(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  const keys = keysOf(act);
  const end = (/** @type {string} */ chosen) => {
    clearTimeout(timer);
    setStrokes(null);
    onProblem(rebind(all, act, chosen));
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (!strokes || event.key === "Tab") return;
    event.preventDefault();
    event.stopPropagation();
    const stroke = strokeOf(event);
    if (event.key === "Escape") return setStrokes(null);
    if (event.key === "Delete" || event.key === "Backspace") return end("");
    if (!stroke) return;
    const pressed = [...strokes, stroke];
    // A letter may be the first of two.
    if (pressed.length > 1 || !isLetter(stroke)) return end(pressed.join(" "));
    setStrokes(pressed);
    setTimer(setTimeout(() => end(stroke), SECOND_KEY_MS));
  };
  const label = strokes ? (strokes.length ? `${shown(strokes[0])} …` : t("Press keys …")) : keys ? shown(keys) : t("none");
  return html`<button type="button" class=${`button button-small keys-button ${keys ? "" : "is-off"}`} data-act-keys=${act.id} aria-label=${t("Keys of: {act}. {keys}", { act: act.title(), keys: label })}
    aria-pressed=${strokes !== null} onClick=${() => (onProblem(""), setStrokes([]))} onKeyDown=${press} onBlur=${() => setStrokes(null)}><kbd>${label}</kbd></button>`;
}

/** Give an act other keys; returns why not, if they cannot be had. @param {Act[]} all @param {Act} act @param {string} keys */
function rebind(all, act, keys) {
  const conflict = keys && all.find((other) => other !== act && collide(keys, keysOf(other)));
  if (conflict) return t("{keys} already stands for: {act}. Change those first.", { keys: shown(keys), act: conflict.title() });
  const problem = keys === (act.keys ?? "") ? "" : refusal(keys);
  if (problem) return problem;
  const { [act.id]: _, ...bound } = preferences.value.bound;
  prefer({ bound: keys === (act.keys ?? "") ? bound : { ...bound, [act.id]: keys } });
  return "";
}

/** Whether the one can never be told from the other, or stands before it. @param {string} one @param {string} other */
const collide = (one, other) => other !== "" && (one === other || one.startsWith(`${other} `) || other.startsWith(`${one} `));
