// OpenAI's client for Node.

import OpenAI from "openai";
import { FORCED, HELLO, KEY, MODEL, URL_ROOT, assert, feature, run } from "./reporting.mjs";

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL_ROOT}/v1`, maxRetries: 0, timeout: 60_000 });
const chat = { model: MODEL, messages: HELLO, max_tokens: 8, temperature: 0 };
const parameters = { type: "object", properties: { city: { enum: ["Rome", "Oslo"] } }, required: ["city"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "weather", parameters } }];

feature("chat: text, usage and finish reason", async () => {
  const answer = await client.chat.completions.create(chat);
  assert.ok(answer.choices[0].message.content);
  assert.ok(["stop", "length"].includes(answer.choices[0].finish_reason));
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

feature("chat: further fields of the server", async () => {
  const answer = await client.chat.completions.create({ ...chat, min_tokens: 8, ignore_eos: true });
  assert.equal(answer.usage.completion_tokens, 8);
});

feature("chat: headers of the raw response", async () => {
  const { data, response, request_id } = await client.chat.completions.create(chat, { headers: { "X-Request-Id": "my-id" } }).withResponse();
  assert.equal(response.headers.get("x-request-id"), "my-id");
  assert.equal(request_id, "my-id");
  assert.equal(data.id, "chatcmpl-my-id");
});

feature("stream: chunks and usage", async () => {
  const chunks = [];
  for await (const chunk of await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } })) {
    chunks.push(chunk);
  }
  assert.ok(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.ok(chunks.at(-1).usage.total_tokens > 0);
});

feature("stream: helper with the final completion", async () => {
  const stream = client.chat.completions.stream(chat);
  let text = "";
  stream.on("content", (delta) => (text += delta));
  assert.equal((await stream.finalChatCompletion()).choices[0].message.content, text);
});

feature(
  "tools: call, answer, go on",
  async () => {
    const asked = { ...chat, max_tokens: 40, tools };
    const { message, finish_reason } = (await client.chat.completions.create({ ...asked, tool_choice: "required" })).choices[0];
    assert.equal(finish_reason, "tool_calls");
    const [call] = message.tool_calls;
    assert.ok(["Rome", "Oslo"].includes(JSON.parse(call.function.arguments).city));
    const messages = [...HELLO, message, { role: "tool", tool_call_id: call.id, content: "sunny" }];
    assert.ok((await client.chat.completions.create({ ...asked, messages, tool_choice: "none" })).choices[0].message.content);
  },
  FORCED,
);

feature(
  "tools: a call grows in a stream",
  async () => {
    const named = { type: "function", function: { name: "weather" } };
    const stream = client.chat.completions.stream({ ...chat, max_tokens: 40, tools, tool_choice: named });
    const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
    assert.ok(["Rome", "Oslo"].includes(JSON.parse(call.function.arguments).city));
  },
  FORCED,
);

feature("structured: JSON Schema", async () => {
  const response_format = { type: "json_schema", json_schema: { name: "place", schema: parameters, strict: true } };
  const answer = await client.chat.completions.parse({ ...chat, max_tokens: 40, response_format });
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(answer.choices[0].message.content).city));
});

feature("completions: text", async () => {
  assert.ok((await client.completions.create({ model: MODEL, prompt: "The sky is", max_tokens: 8, temperature: 0 })).choices[0].text);
});

feature("embeddings: base64, unpacked", async () => {
  const { data } = await client.embeddings.create({ model: MODEL, input: ["a cat", "a dog"] });
  const length = Math.sqrt(data[0].embedding.reduce((sum, value) => sum + value * value, 0));
  assert.ok(Math.abs(length - 1) < 1e-3);
});

feature("responses: text, stream, continue", async () => {
  const asked = { model: MODEL, input: "Say hello.", max_output_tokens: 16, temperature: 0 };
  const first = await client.responses.create(asked);
  assert.ok(first.output_text);
  let text = "";
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.ok(text);
  assert.ok((await client.responses.create({ ...asked, previous_response_id: first.id })).output_text);
});

feature("files: upload, read, delete", async () => {
  const file = await client.files.create({ file: new File(['{"a": 1}\n'], "notes.jsonl"), purpose: "user_data" });
  assert.equal(await (await client.files.content(file.id)).text(), '{"a": 1}\n');
  assert.ok((await client.files.delete(file.id)).deleted);
});

feature("models: list and one", async () => {
  assert.ok((await client.models.list()).data.some((model) => model.id === MODEL));
  assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
});

feature("errors: class, code and field", async () => {
  await assert.rejects(client.chat.completions.create({ ...chat, temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.deepEqual([error.code, error.param], ["invalid_value", "temperature"]);
    return true;
  });
  await assert.rejects(client.chat.completions.create({ ...chat, model: "gpt-9" }), OpenAI.NotFoundError);
  await assert.rejects(new OpenAI({ apiKey: "bad", baseURL: `${URL_ROOT}/v1`, maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
});

await run();
