// Claude Code, asked from the command line, with all the tools that it offers a model.

import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { KEY, MODEL, SCRATCH, URL_ROOT, assert, feature, run } from "./reporting.mjs";

const COMMAND = fileURLToPath(new URL("node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs", import.meta.url));
const WORK = path.join(SCRATCH, "work");
mkdirSync(WORK, { recursive: true });

function claude(words, key = KEY) {
  const env = {
    PATH: process.env.PATH,
    HOME: SCRATCH,
    ANTHROPIC_BASE_URL: URL_ROOT,
    ANTHROPIC_AUTH_TOKEN: key,
    ANTHROPIC_MODEL: MODEL,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: MODEL,
    CLAUDE_CODE_MAX_OUTPUT_TOKENS: "48",
    CLAUDE_CODE_MAX_RETRIES: "0",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    API_TIMEOUT_MS: "1800000",
  };
  const done = spawnSync(process.execPath, [COMMAND, "-p", "--output-format", "json", ...words], { cwd: WORK, env, encoding: "utf8" });
  try {
    return { status: done.status, ...JSON.parse(done.stdout) };
  } catch {
    throw new Error(`ended with ${done.status}: ${done.stdout} ${done.stderr}`);
  }
}

feature("chat: a question from the command line, with all its tools", async () => {
  const answer = claude(["Say hello."]);
  assert.equal(answer.status, 0, JSON.stringify(answer));
  assert.equal(answer.is_error, false);
  assert.ok(answer.result);
});

feature("chat: the conversation goes on", async () => {
  const answer = claude(["--continue", "Say it again."]);
  assert.equal(answer.status, 0, JSON.stringify(answer));
  assert.equal(answer.is_error, false);
});

feature("errors: a key that is not known", async () => {
  const answer = claude(["Say hello."], "nobody");
  assert.equal(answer.is_error, true);
  assert.match(answer.result, /401|key|authenticat/i);
});

await run();
