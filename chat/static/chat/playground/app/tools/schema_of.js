// @ts-check
/** The schema of values like this one: all that it has is required. @param {any} value @returns {any} */
export function schemaOf(value) {
  if (value === null) return { type: "null" };
  if (Array.isArray(value)) {
    const kinds = [...new Map(value.map((item) => [JSON.stringify(schemaOf(item)), schemaOf(item)])).values()];
    return { type: "array", ...(kinds.length === 0 ? {} : { items: kinds.length === 1 ? kinds[0] : { anyOf: kinds } }) };
  }
  if (typeof value === "object") {
    const properties = Object.fromEntries(Object.entries(value).map(([name, item]) => [name, schemaOf(item)]));
    return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
  }
  if (typeof value === "number") return { type: Number.isInteger(value) ? "integer" : "number" };
  return { type: typeof value };
}
