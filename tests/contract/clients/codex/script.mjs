// Codex CLI, asked from the command line, with all the tools that it offers a model.

import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { KEY, MODEL, SCRATCH, URL_ROOT, assert, feature, run } from "./reporting.mjs";

const COMMAND = fileURLToPath(new URL("node_modules/@openai/codex/bin/codex.js", import.meta.url));
const WORK = path.join(SCRATCH, "work");
mkdirSync(WORK, { recursive: true });
writeFileSync(
  path.join(SCRATCH, "config.toml"),
  `model = "${MODEL}"
model_provider = "lightcone"
[model_providers.lightcone]
name = "Lightcone"
base_url = "${URL_ROOT}/v1"
env_key = "LIGHTCONE_API_KEY"
wire_api = "responses"
stream_idle_timeout_ms = 1800000
request_max_retries = 0
stream_max_retries = 0
`,
);

function codex(words, key = KEY) {
  const env = { PATH: process.env.PATH, HOME: SCRATCH, CODEX_HOME: SCRATCH, LIGHTCONE_API_KEY: key };
  const all = [COMMAND, "exec", "--json", "--skip-git-repo-check", ...words];
  const done = spawnSync(process.execPath, all, { cwd: WORK, env, input: "", encoding: "utf8" });
  const events = done.stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return { status: done.status, events, told: done.stdout + done.stderr };
}

feature("responses: a question from the command line, with all its tools", async () => {
  const { status, events, told } = codex(["Say hello."]);
  assert.equal(status, 0, told);
  assert.ok(events.some((event) => event.type === "turn.completed" && event.usage.output_tokens > 0), told);
});

feature("responses: the conversation goes on", async () => {
  const { status, told } = codex(["resume", "--last", "Say it again."]);
  assert.equal(status, 0, told);
});

feature("errors: a key that is not known", async () => {
  const { status, told } = codex(["Say hello."], "nobody");
  assert.notEqual(status, 0);
  assert.match(told, /401/);
});

await run();
