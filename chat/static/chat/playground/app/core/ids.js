// @ts-check
/** Return a new id of letters and digits, also on plain HTTP, where `crypto.randomUUID` is missing. */
export function freshId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
