// Names for messages, runs and chats that nothing else has. `crypto.randomUUID` is missing on pages served over plain HTTP.
export function freshId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
