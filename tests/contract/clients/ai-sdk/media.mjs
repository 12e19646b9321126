// Vercel's AI SDK sends images, PDF, text and sound to a model that sees, by its providers of three dialects.

import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, experimental_transcribe as transcribe, generateText } from "ai";
import { KEY, MODEL, SCRATCH, URL_ROOT, assert, feature, run } from "./reporting.mjs";

const at = { apiKey: KEY, baseURL: `${URL_ROOT}/v1` };
const openai = createOpenAI(at);
const compatible = createOpenAICompatible({ name: "lightcone", ...at })(MODEL);
const chat = openai.chat(MODEL);
const responses = openai.responses(MODEL);
const messages = createAnthropic(at)(MODEL);
const [image, other, page, scan, sound] = ["image.png", "other.png", "page.pdf", "scan.pdf", "sound.wav"].map((name) =>
  readFileSync(`${SCRATCH}/${name}`),
);

async function ask(model, ...parts) {
  const content = [{ type: "text", text: "What is it?" }, ...parts];
  const request = { model, messages: [{ role: "user", content }], maxOutputTokens: 6, temperature: 0, maxRetries: 0 };
  const { text, usage } = await generateText(request);
  return { text, tokens: usage.inputTokens };
}

const pdf = (data) => ({ type: "file", data, mediaType: "application/pdf", filename: "x.pdf" });

async function sameOfAll(models, part) {
  const answers = [];
  for (const model of models) answers.push(await ask(model, part));
  for (const answer of answers) assert.deepEqual(answer, answers[0]);
  return answers[0];
}

feature("images: bytes, by four providers", async () => {
  const seen = await sameOfAll([compatible, chat, responses, messages], { type: "image", image });
  const apart = await ask(compatible, { type: "image", image: other });
  assert.notEqual(seen.text, apart.text);
  assert.equal(seen.tokens, (await ask(compatible)).tokens + 16);
});

feature("images: as a file part, and as a data URL", async () => {
  const seen = await ask(chat, { type: "image", image });
  assert.deepEqual(await ask(chat, { type: "file", data: image, mediaType: "image/png" }), seen);
  const url = new URL(`data:image/png;base64,${image.toString("base64")}`);
  assert.deepEqual(await ask(chat, { type: "image", image: url }), seen);
});

feature("files: a PDF with text, by four providers", async () => {
  const read = await sameOfAll([compatible, chat, responses, messages], pdf(page));
  assert.ok(read.tokens > (await ask(compatible)).tokens);
});

feature("files: a scan is seen, by four providers", async () => {
  const seen = await sameOfAll([compatible, chat, responses, messages], pdf(scan));
  assert.ok(seen.tokens > (await ask(compatible)).tokens + 16);
});

feature("files: text", async () => {
  const part = { type: "file", data: Buffer.from("Bring milk."), mediaType: "text/plain", filename: "notes.txt" };
  const [bare, named] = [await ask(compatible, part), await ask(messages, part)];
  assert.ok(named.tokens > bare.tokens); // Anthropic's provider sends its name too
});

feature("files: an uploaded PDF by its id", async () => {
  const form = new FormData();
  form.append("purpose", "user_data");
  form.append("file", new File([scan], "x.pdf"));
  const headers = { Authorization: `Bearer ${KEY}` };
  const made = await (await fetch(`${URL_ROOT}/v1/files`, { method: "POST", headers, body: form })).json();
  assert.deepEqual(await ask(responses, pdf(made.id)), await ask(responses, pdf(scan)));
});

feature("files: an address is the server's to fetch or refuse", async () => {
  for (const model of [responses, messages]) {
    await assert.rejects(ask(model, pdf(new URL("https://files.example/x.pdf"))), (error) => {
      assert.ok(APICallError.isInstance(error));
      assert.equal(error.statusCode, 400);
      assert.match(error.message, /fetches no remote media/);
      return true;
    });
  }
});

feature("audio: a part is written down", async () => {
  const part = { type: "file", data: sound, mediaType: "audio/wav" };
  const heard = await sameOfAll([compatible, chat], part);
  assert.ok(heard.tokens > (await ask(compatible)).tokens);
});

feature("audio: transcribe", async () => {
  const asked = { model: openai.transcription("whisper"), audio: sound, maxRetries: 0 };
  const { text } = await transcribe(asked);
  assert.ok(text);
  const timed = await transcribe({ ...asked, providerOptions: { openai: { timestampGranularities: ["segment"] } } });
  assert.equal(timed.text, text);
  assert.equal(timed.durationInSeconds, 2);
  assert.ok(timed.segments.length);
});

await run();
