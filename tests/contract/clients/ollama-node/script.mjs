// Ollama's client for Node.

import { Ollama } from "ollama";
import { HELLO, KEY, MODEL, URL_ROOT, assert, feature, run } from "./reporting.mjs";

const WORDS = "the test model answers in words, and this client cannot force a call";
const client = new Ollama({ host: URL_ROOT, headers: { Authorization: `Bearer ${KEY}` } });
const options = { num_predict: 8, temperature: 0 };
const chat = { model: MODEL, messages: HELLO, options };
const schema = { type: "object", properties: { drink: { enum: ["tea", "coffee"] } }, required: ["drink"], additionalProperties: false };
const parameters = { type: "object", required: ["city"], properties: { city: { type: "string", description: "A city." } } };
const tools = [{ type: "function", function: { name: "weather", description: "The weather.", parameters } }];

async function all(stream) {
  const pieces = [];
  for await (const piece of await stream) pieces.push(piece);
  return pieces;
}

feature("chat: text, counts, times and the reason of the end", async () => {
  const answer = await client.chat(chat);
  assert.ok(answer.message.content);
  assert.ok(["stop", "length"].includes(answer.done_reason));
  assert.ok(answer.prompt_eval_count > 0 && answer.eval_count > 0);
  assert.ok(answer.total_duration >= answer.eval_duration && answer.eval_duration > 0);
  assert.ok(new Date(answer.created_at).getTime() > 0);
});

feature("chat: log-probabilities, thinking and keep_alive", async () => {
  const answer = await client.chat({ ...chat, logprobs: true, top_logprobs: 2, think: false, keep_alive: "5m" });
  assert.equal(answer.logprobs.length, answer.eval_count);
});

feature("chat: without messages the model is loaded", async () => {
  assert.equal((await client.chat({ model: MODEL })).done_reason, "load");
});

feature("stream: pieces, the last with counts", async () => {
  const pieces = await all(client.chat({ ...chat, stream: true }));
  const last = pieces.pop();
  assert.equal(pieces.map((piece) => piece.message.content).join(""), (await client.chat(chat)).message.content);
  assert.ok(pieces.every((piece) => !piece.done));
  assert.ok(last.done && last.eval_count > 0);
});

feature("stream: stopped by the client", async () => {
  const stream = await client.chat({ ...chat, options: { num_predict: 500, temperature: 0 }, stream: true });
  await assert.rejects(async () => {
    for await (const piece of stream) {
      assert.ok(!piece.done);
      stream.abort();
    }
  }, { name: "AbortError" });
});

feature(
  "tools: functions are offered, calls and results read",
  async () => {
    assert.ok((await client.chat({ ...chat, tools })).done);
    const call = { function: { name: "weather", arguments: { city: "Oslo" } } };
    const messages = [
      ...HELLO,
      { role: "assistant", content: "", tool_calls: [call] },
      { role: "tool", tool_name: "weather", content: "sunny" },
    ];
    assert.ok((await client.chat({ ...chat, messages, tools })).message.content);
  },
  WORDS,
);

feature("structured: JSON Schema", async () => {
  const answer = await client.chat({ ...chat, options: { num_predict: 24 }, format: schema });
  assert.ok(["tea", "coffee"].includes(JSON.parse(answer.message.content).drink));
});

feature("completions: a prompt, whole and streamed, and raw", async () => {
  const asked = { model: MODEL, prompt: "Say hello.", options };
  const { response } = await client.generate(asked);
  const pieces = await all(client.generate({ ...asked, stream: true }));
  assert.equal(pieces.map((piece) => piece.response).join(""), response);
  assert.ok((await client.generate({ ...asked, raw: true })).response);
});

feature("embeddings: several texts, and the older route", async () => {
  const { embeddings } = await client.embed({ model: MODEL, input: ["a cat", "a dog"] });
  assert.equal(embeddings.length, 2);
  assert.equal((await client.embeddings({ model: MODEL, prompt: "a cat" })).embedding.length, embeddings[0].length);
});

feature("models: listed, shown, running, and the version", async () => {
  assert.ok((await client.list()).models.some((model) => model.name === MODEL));
  assert.equal((await client.show({ model: MODEL })).details.format, "gguf");
  assert.ok((await client.ps()).models.some((model) => model.name === MODEL));
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

feature("models: copied, created, deleted", async () => {
  await client.copy({ source: MODEL, destination: "further:node" });
  assert.ok((await client.chat({ ...chat, model: "further:node" })).message.content);
  const steps = await all(client.create({ model: "calm:node", from: MODEL, parameters: { temperature: 0.1 }, stream: true }));
  assert.equal(steps.at(-1).status, "success");
  for (const model of ["further:node", "calm:node"]) assert.equal((await client.delete({ model })).status, "success");
  assert.ok(!(await client.list()).models.some((model) => model.name.endsWith(":node")));
});

feature("models: pulled, where there is nothing to fetch", async () => {
  assert.equal((await client.pull({ model: MODEL })).status, "success");
  await assert.rejects(client.pull({ model: "llama3.2" }), { status_code: 400 });
});

feature("errors: status and sentence", async () => {
  await assert.rejects(client.chat({ ...chat, model: "llama9" }), { name: "ResponseError", status_code: 404, message: /not found/ });
  await assert.rejects(client.chat({ ...chat, options: { temperature: 9 } }), { status_code: 400, message: /options\.temperature/ });
  const stranger = new Ollama({ host: URL_ROOT, headers: { Authorization: "Bearer lc_no" } });
  await assert.rejects(stranger.list(), { status_code: 401 });
});

await run();
