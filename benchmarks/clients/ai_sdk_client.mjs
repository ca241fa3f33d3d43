// Vercel's AI SDK over its three models: OpenAI's responses, OpenAI's chats, and what is compatible with them.
import * as c from "./cases.mjs";

const ai = await c.packaged("ai");
const { createOpenAI } = await c.packaged("@ai-sdk/openai");
const { createOpenAICompatible } = await c.packaged("@ai-sdk/openai-compatible");
const { z } = await c.packaged("zod");

const place = { baseURL: c.URL_OF_SERVER, apiKey: "none" };
const openai = createOpenAI(place);
const compatible = createOpenAICompatible({ name: "here", supportsStructuredOutputs: true, includeUsage: true, ...place });
const models = { "responses: ": openai.responses(c.CHAT), "": openai.chat(c.CHAT), "compatible: ": compatible(c.CHAT) };
const Person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(150) });
const Weather = z.object({ town: z.enum(["Rome", "Paris"]), days: z.union([z.literal(1), z.literal(2), z.literal(3)]) });

/** Read a stream to its end, and throw the error that it tells. */
async function read(ask) {
  let failed;
  const stream = ai.streamText({ ...ask, onError: ({ error }) => (failed = error) });
  await stream.consumeStream();
  if (failed) throw failed;
  return stream;
}

for (const [kind, model] of Object.entries(models)) {
  const ask = { model, prompt: c.QUESTION, temperature: 0, maxOutputTokens: c.TOKENS, maxRetries: 0 };

  c.add(`${kind}plain and streamed`, async () => {
    const { text, finishReason, usage } = await ai.generateText(ask);
    c.checkAnswer(text);
    c.equal([finishReason, usage.totalTokens], ["stop", usage.inputTokens + usage.outputTokens]);
    const stream = await read(ask);
    c.checkAnswer(await stream.text);
    c.equal((await stream.usage).totalTokens, usage.totalTokens);
  });

  for (const strict of [false, true]) {
    c.add(`${kind}${strict ? "strict " : ""}tool, plain and streamed`, async () => {
      const weather = ai.tool({ description: c.FUNCTION.description, inputSchema: Weather, strict });
      const asked = { ...ask, tools: { weather }, toolChoice: "required" };
      if (kind !== "compatible: ") asked.providerOptions = { openai: { parallelToolCalls: false } };
      const [call] = (await ai.generateText(asked)).toolCalls;
      c.checkCall(call.toolName, call.input);
      const [built] = await (await read(asked)).toolCalls;
      c.equal([built.toolName, built.input], [call.toolName, call.input]);
    });
  }

  c.add(`${kind}function called, with its result`, async () => {
    const calls = [];
    const weather = ai.tool({ inputSchema: Weather, execute: (given) => (calls.push(given), "sunny") });
    const choice = { type: "tool", toolName: "weather" };
    const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : choice });
    const { steps } = await ai.generateText({ ...ask, tools: { weather }, prepareStep, stopWhen: ai.stepCountIs(2) });
    c.equal([steps.length, calls.length, steps[1].toolCalls.length], [2, 1, 0]);
    c.checkCall("weather", calls[0]);
  });

  c.add(`${kind}JSON schema, plain and streamed`, async () => {
    const asked = { ...ask, output: ai.Output.object({ schema: Person }) };
    const { output } = await ai.generateText(asked);
    c.checkPerson(output);
    c.equal(await (await read(asked)).output, output);
  });
}

c.add("text completion", async () => {
  const ask = { prompt: "The sea is", temperature: 0, maxOutputTokens: c.TOKENS, maxRetries: 0 };
  const { text } = await ai.generateText({ ...ask, model: compatible.completionModel(c.CHAT) });
  c.equal(await (await read({ ...ask, model: openai.completion(c.CHAT) })).text, text);
});

c.add("embeddings", async () => {
  for (const model of [openai.embeddingModel(c.ENCODER), compatible.embeddingModel(c.ENCODER)]) {
    await c.checkVectors((await ai.embedMany({ model, values: c.TEXTS, maxRetries: 0 })).embeddings);
  }
});
