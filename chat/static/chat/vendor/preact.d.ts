export * from "preact";
export * from "preact/hooks";
export { Signal, signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
export type { ReadonlySignal } from "@preact/signals";
export { html } from "htm/preact";
