// @ts-check
// Presets: model, system prompt and parameters under a name, kept on the server and shared with the project if their owner wants.
import { signal } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { api } from "../core/api.js";
import * as app from "../core/app.js";
import { t } from "../core/i18n.js";
import { isSame } from "../core/json.js";
import { wrongFields } from "./validity.js";

/** @import { Signal } from "../../../vendor/preact.js" */
/** @import { Chat } from "../core/chat.js" */
/** @import { ChatSettings } from "../core/types.js" */

/** @typedef {{id: number, name: string, parameters: Partial<ChatSettings>, is_shared: boolean, is_own: boolean, owner: string}} Preset */

/** Null until they are loaded. @type {Signal<Preset[] | null>} */
export const presets = signal(null);

/** The preset that a chat was last given, by chat. @type {WeakMap<Chat, Signal<number | null>>} */
const given = new WeakMap();

/** @param {Chat} open @returns {Signal<number | null>} */
function givenOf(open) {
  const found = given.get(open) ?? signal(null);
  given.set(open, found);
  return found;
}

/** @param {Chat} open @returns {ChatSettings} */
function settingsOf(open) {
  const { model, system, parameters } = open.settings.value;
  return { model, system, parameters };
}

/** The preset of a chat: the one that it was given, else one that says what is set. @param {Chat} open @returns {Preset | undefined} */
export function presetOf(open) {
  const id = givenOf(open).value;
  const all = presets.value ?? [];
  return all.find((preset) => preset.id === id) ?? all.find((preset) => isSame(preset.parameters, settingsOf(open)));
}

/** Whether the chat has other settings than its preset. @param {Chat} open @param {Preset} preset */
export const isChanged = (open, preset) => !isSame(preset.parameters, settingsOf(open));

export const loadPresets = () =>
  acts.attempt(async () => {
    ({ data: presets.value } = await api("GET", "presets"));
  });

/** @param {Preset} preset */
function put(preset) {
  const others = (presets.value ?? []).filter(({ id }) => id !== preset.id);
  presets.value = [...others, preset].sort((one, other) => one.name.localeCompare(other.name) || one.id - other.id);
}

/** Give a chat the settings of a preset. @param {Chat} open @param {Preset} preset */
export function applyPreset(open, preset) {
  const [before, idBefore, wrongBefore] = [settingsOf(open), givenOf(open).value, wrongFields(open).value];
  const { model, system = "", parameters = {} } = preset.parameters;
  const isServed = model !== undefined && app.modelOf(model) !== undefined;
  wrongFields(open).value = {};
  acts.changeSettings(open, { system, parameters, ...(isServed ? { model } : {}) });
  givenOf(open).value = preset.id;
  const undo = () => {
    acts.changeSettings(open, before);
    wrongFields(open).value = wrongBefore;
    givenOf(open).value = idBefore;
  };
  const text = isServed || !model ? t("{name} is applied.", { name: preset.name }) : t("{name} is applied, but for its model {model}, which is not served to you.", { name: preset.name, model });
  app.notice.value = { text, act: t("Undo"), run: undo };
}

/** Keep the settings of a chat under a name. @param {Chat} open @param {string} name */
export const savePreset = (open, name) =>
  acts.attempt(async () => {
    const made = await api("POST", "presets", { name, parameters: settingsOf(open) });
    put(made);
    givenOf(open).value = made.id;
  });

/** Keep the settings of a chat in a preset that is there. @param {Chat} open @param {Preset} preset */
export const updatePreset = (open, preset) =>
  acts.attempt(async () => {
    put(await api("PATCH", `presets/${preset.id}`, { parameters: settingsOf(open) }));
    givenOf(open).value = preset.id;
    const undo = () => acts.attempt(async () => put(await api("PATCH", `presets/${preset.id}`, { parameters: preset.parameters })));
    app.notice.value = { text: t("{name} is updated.", { name: preset.name }), act: t("Undo"), run: undo };
  });

/** Offer a preset to the project, or no more. @param {Preset} preset @param {boolean} isShared */
export const sharePreset = (preset, isShared) => acts.attempt(async () => put(await api("PATCH", `presets/${preset.id}`, { is_shared: isShared })));

/** @param {Preset} preset */
export const deletePreset = (preset) =>
  acts.attempt(async () => {
    await api("DELETE", `presets/${preset.id}`);
    presets.value = (presets.value ?? []).filter(({ id }) => id !== preset.id);
    const { name, parameters, is_shared } = preset;
    const undo = () => acts.attempt(async () => put(await api("POST", "presets", { name, parameters, is_shared })));
    app.notice.value = { text: t("{name} is deleted.", { name }), act: t("Undo"), run: undo };
  });
