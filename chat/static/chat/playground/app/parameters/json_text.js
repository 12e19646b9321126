// @ts-check
// The request as text, without its messages: written, and read with everything that is wrong with it.
import { t } from "../core/i18n.js";
import * as app from "../core/app.js";
import { isObject, parse } from "../core/json.js";
import { page } from "../core/page.js";
import { check } from "./value_problems.js";

/** @import { Schema } from "./form_facts.js" */
/** @import { ValueProblem } from "./value_problems.js" */
/** @import { Parameters } from "../core/types.js" */

/** @param {string} model @param {Parameters} parameters */
export const writeRequest = (model, parameters) => JSON.stringify({ model, ...parameters }, null, 2);

/**
 * Read a request. It has a value only if nothing is wrong with it.
 * @param {string} text
 * @param {Schema} [schema] of the whole request, once it is loaded
 * @returns {{value?: {model: string} & Parameters, problems: ValueProblem[]}}
 */
export function readRequest(text, schema) {
  const { isWhole, value, problem } = parse(text);
  if (!isWhole) return { problems: [{ path: [], message: t("This is not valid JSON: {problem}", { problem }) }] };
  if (!isObject(value)) return { problems: [{ path: [], message: t('This must be one JSON object, such as {"temperature": 0}.') }] };
  const problems = Object.keys(value).flatMap((name) => fieldProblems(name, value[name], schema));
  if (!("model" in value)) problems.unshift({ path: [], message: t("model is missing: it names the model that answers.") });
  return problems.length ? { problems } : { value: /** @type {{model: string}} */ (value), problems };
}

/** @param {string} name @param {any} value @param {Schema} [schema] @returns {ValueProblem[]} */
function fieldProblems(name, value, schema) {
  const path = [name];
  if (name === "messages") return [{ path, message: t("messages is the chat itself: write in the conversation, and the system prompt under Parameters.") }];
  if (!page.fields.includes(name)) return [{ path, message: t("{name} is no field that can be sent from here; check its spelling or leave it out.", { name: name.slice(0, 64) }) }];
  if (name === "model" && !app.modelOf(value)) {
    const names = app.models.value.map(({ id }) => id).join(", ");
    return [{ path, message: t("model must be one that is served to you ({names}), not {name}.", { names, name: JSON.stringify(value) }) }];
  }
  return schema ? check(value, schema.properties[name], name, schema, path) : [];
}
