// @ts-check
// What is said of arguments and answers that do not satisfy their schema: the place, and what must hold there.
import { checkValue, pathText, typeOf } from "../core/schema_check.js";
import { t } from "../core/i18n.js";

/** @import { Failure } from "../core/schema_check.js" */

/** @typedef {{path: string, message: string}} Remark */

/** @param {any} value @param {any} schema @returns {{remarks: Remark[], unknown: string[]}} `unknown`: keywords of the schema that were not looked at */
export function remarksOn(value, schema) {
  const { failures, unknown } = checkValue(value, schema);
  return { remarks: failures.map((failure) => ({ path: pathText(failure.path), message: messageOf(failure) })), unknown };
}

/** @param {Failure} failure */
const messageOf = (failure) => MESSAGES[failure.keyword](failure);

/** @param {any} value */
const short = (value) => {
  const text = JSON.stringify(value) ?? "";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
};

/** @type {Record<string, (failure: Failure) => string>} */
const MESSAGES = {
  false: () => t("is not allowed"),
  type: ({ rule, value }) => t("must be {types}, and is {type}", { types: [rule].flat().join(" | "), type: typeOf(value) }),
  enum: ({ rule, value }) => t("must be one of {values}, and is {value}", { values: rule.map(short).join(", "), value: short(value) }),
  const: ({ rule }) => t("must be {value}", { value: short(rule) }),
  required: () => t("is missing"),
  propertyNames: ({ inner = [] }) => t("is no name that may stand here: {problem}", { problem: inner.map(messageOf).join(", ") }),
  minItems: ({ rule }) => t("must have at least {n} items", { n: rule }),
  maxItems: ({ rule }) => t("may have at most {n} items", { n: rule }),
  uniqueItems: () => t("must have no item twice"),
  minProperties: ({ rule }) => t("must have at least {n} properties", { n: rule }),
  maxProperties: ({ rule }) => t("may have at most {n} properties", { n: rule }),
  minLength: ({ rule }) => t("must have at least {n} characters", { n: rule }),
  maxLength: ({ rule }) => t("may have at most {n} characters", { n: rule }),
  pattern: ({ rule }) => t("must match {pattern}", { pattern: rule }),
  minimum: ({ rule }) => t("must be at least {n}", { n: rule }),
  maximum: ({ rule }) => t("must be at most {n}", { n: rule }),
  exclusiveMinimum: ({ rule }) => t("must be above {n}", { n: rule }),
  exclusiveMaximum: ({ rule }) => t("must be below {n}", { n: rule }),
  multipleOf: ({ rule }) => t("must be a multiple of {n}", { n: rule }),
  anyOf: () => t("satisfies none of the alternatives"),
  oneOf: () => t("satisfies more than one of the alternatives"),
  not: () => t("is what the schema excludes"),
};
