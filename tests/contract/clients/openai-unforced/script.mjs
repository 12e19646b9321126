// Tools that the model calls of its own accord, through OpenAI's client.

import OpenAI from "openai";
import { KEY, MODEL, URL_ROOT, assert, feature, run } from "./reporting.mjs";

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL_ROOT}/v1`, maxRetries: 0, timeout: 600_000 });
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const asked = [{ role: "user", content: "What is the weather in Paris?" }];
const request = { model: MODEL, messages: asked, tools: [weather], temperature: 0, max_tokens: 120 };

feature("tools: called without being forced, answered, gone on", async () => {
  const { choices } = await client.chat.completions.create(request);
  const [{ message, finish_reason }] = choices;
  assert.equal(finish_reason, "tool_calls", JSON.stringify(message));
  const [call] = message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.equal(JSON.parse(call.function.arguments).city, "Paris");
  const result = { role: "tool", tool_call_id: call.id, content: "sunny" };
  const rest = await client.chat.completions.create({ ...request, messages: [...asked, message, result], max_tokens: 40 });
  assert.ok(rest.choices[0].message.content || rest.choices[0].message.tool_calls);
});

feature("tools: called in a stream without being forced", async () => {
  const stream = client.chat.completions.stream(request);
  const { choices } = await stream.finalChatCompletion();
  const [{ message, finish_reason }] = choices;
  assert.equal(finish_reason, "tool_calls", JSON.stringify(message));
  assert.equal(JSON.parse(message.tool_calls[0].function.arguments).city, "Paris");
  assert.ok(!message.content);
});

await run();
