// What the scripts of Node clients share: reporting.py in JavaScript.

import assert from "node:assert/strict";
import { File } from "node:buffer";

globalThis.File ??= File; // Node 18 keeps it in a module

export const URL_ROOT = process.env.LIGHTCONE_BASE_URL;
export const KEY = process.env.LIGHTCONE_API_KEY;
export const MODEL = process.env.LIGHTCONE_MODEL;
export const SCRATCH = process.env.LIGHTCONE_SCRATCH;
export const HELLO = [{ role: "user", content: "Say hello in one short sentence." }];
export const FORCED = "with `tool_choice`: the test model is too small to call a tool by itself";
export { assert };

const LONGEST_WHY = 300;
const FEATURES = [];

export function feature(name, action, note = "") {
  FEATURES.push({ name, action, note });
}

export async function run() {
  for (const { name, action, note } of FEATURES) {
    const line = { feature: name, passed: true, why: note, is_impossible: false };
    try {
      await action();
    } catch (error) {
      console.error(error);
      const why = `${error?.name ?? "Error"}: ${error?.message ?? error}`.replace(/\s+/g, " ");
      Object.assign(line, { passed: false, why: why.slice(0, LONGEST_WHY) });
    }
    process.stdout.write(JSON.stringify(line) + "\n");
  }
}
