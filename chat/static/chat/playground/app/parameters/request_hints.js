// @ts-check
// What the JSON of the request has beside any JSON: its problems at their places, and names and values of our schema.
import * as app from "../core/app.js";
import { jsonHints } from "../view/json_hints.js";
import { form } from "./form_facts.js";
import { readRequest } from "./json_text.js";

/** @import { Extension } from "../../../vendor/codemirror.js" */
/** @import { Library } from "../view/json_editor.js" */

/** @param {Library} library @returns {Extension[]} */
export const requestHints = (library) =>
  jsonHints(library, {
    schema: () => form.value?.schema,
    problemsOf: (text) => readRequest(text, form.value?.schema).problems,
    valuesFor: (name) => (name === "model" ? app.models.value.map(({ id }) => ({ label: JSON.stringify(id), type: "text" })) : null),
    leftOut: ["messages"],
  });
