// Vercel's AI SDK with its provider for servers of OpenAI's shape.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";
import { FORCED, HELLO, KEY, MODEL, URL_ROOT, assert, feature, run } from "./reporting.mjs";

const provider = createOpenAICompatible({
  name: "lightcone",
  apiKey: KEY,
  baseURL: `${URL_ROOT}/v1`,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const brief = { model: provider(MODEL), messages: HELLO, maxOutputTokens: 8, temperature: 0, maxRetries: 0 };
const roomy = { ...brief, maxOutputTokens: 40 };
const order = z.object({ drink: z.enum(["tea", "coffee"]) });
const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.enum(["Rome", "Oslo"]) }),
  execute: async ({ city }) => `sunny in ${city}`,
});

feature("chat: text, usage and finish reason", async () => {
  const { text, usage, finishReason } = await generateText(brief);
  assert.ok(text);
  assert.ok(["stop", "length"].includes(finishReason));
  assert.ok(usage.outputTokens > 0);
});

feature("chat: further fields by providerOptions", async () => {
  const { usage } = await generateText({ ...brief, providerOptions: { lightcone: { min_tokens: 8, ignore_eos: true } } });
  assert.equal(usage.outputTokens, 8);
});

feature("stream: text and usage", async () => {
  const result = streamText({ ...brief, onError: ({ error }) => assert.fail(error) });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  assert.ok(text);
  assert.ok((await result.usage).outputTokens > 0);
});

feature(
  "tools: called, answered, gone on",
  async () => {
    const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" });
    const { steps } = await generateText({ ...roomy, tools: { weather }, stopWhen: stepCountIs(2), prepareStep });
    assert.equal(steps.length, 2);
    assert.match(steps[0].toolResults[0].output, /^sunny in (Rome|Oslo)$/);
    assert.ok(steps[1].text);
  },
  FORCED,
);

feature(
  "tools: a call grows in a stream",
  async () => {
    const result = streamText({ ...roomy, tools: { weather }, toolChoice: { type: "tool", toolName: "weather" } });
    const kinds = new Set();
    for await (const part of result.fullStream) kinds.add(part.type);
    assert.ok(kinds.has("tool-input-delta") && kinds.has("tool-call"), [...kinds].join());
    assert.match((await result.toolResults)[0].output, /^sunny in (Rome|Oslo)$/);
  },
  FORCED,
);

feature("structured: generateObject", async () => {
  const { object } = await generateObject({ ...roomy, schema: order });
  assert.ok(["tea", "coffee"].includes(object.drink));
});

feature("structured: streamObject", async () => {
  const result = streamObject({ ...roomy, schema: order });
  for await (const part of result.partialObjectStream) assert.equal(typeof part, "object");
  assert.ok(["tea", "coffee"].includes((await result.object).drink));
});

feature("structured: output of generateText", async () => {
  const { output } = await generateText({ ...roomy, output: Output.object({ schema: order }) });
  assert.ok(["tea", "coffee"].includes(output.drink));
});

feature("completions: text", async () => {
  const { text } = await generateText({ model: provider.completionModel(MODEL), prompt: "The sky is", maxOutputTokens: 8, temperature: 0 });
  assert.ok(text);
});

feature("embeddings: floats", async () => {
  const { embeddings } = await embedMany({ model: provider.textEmbeddingModel(MODEL), values: ["a cat", "a dog"] });
  assert.equal(embeddings.length, 2);
  assert.equal(embeddings[0].length, embeddings[1].length);
});

feature("errors: status and message", async () => {
  await assert.rejects(generateText({ ...brief, temperature: 9 }), (error) => {
    assert.ok(APICallError.isInstance(error));
    assert.equal(error.statusCode, 400);
    assert.match(error.message, /temperature/);
    return true;
  });
});

await run();
