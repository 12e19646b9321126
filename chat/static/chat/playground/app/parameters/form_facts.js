// @ts-check
// What a request may have: its fields by groups, and the JSON Schema of the whole, as the server says.
import { signal } from "../../../vendor/preact.js";
import { api, refusalOf } from "../core/api.js";

/** @import { Signal } from "../../../vendor/preact.js" */

/** @typedef {Record<string, any>} Schema */
/** @typedef {{title: string, help: string, schema: Schema, group: string, is_common: boolean}} FieldFacts */
/** @typedef {{groups: {name: string, title: string, fields: string[]}[], fields: Record<string, FieldFacts>, schema: Schema}} FormFacts */

/** Null until it is loaded. @type {Signal<FormFacts | null>} */
export const form = signal(null);
/** Why it is not there. */
export const formProblem = signal("");

let isLoading = false;

/** Load the form, once for the life of the page. */
export async function loadForm() {
  if (form.value || isLoading) return;
  isLoading = true;
  formProblem.value = "";
  try {
    formProblem.value = await refusalOf(async () => (form.value = await api("GET", "fields")));
  } finally {
    isLoading = false;
  }
}
