// OpenAI's client for node: chats, its own streams, tools, forms of zod, responses, embeddings.
import * as c from "./cases.mjs";

const { default: OpenAI, NotFoundError } = await c.packaged("openai");
const { zodFunction, zodResponseFormat, zodTextFormat } = await c.packaged("openai/helpers/zod");
const { z } = await c.packaged("zod");

const client = new OpenAI({ baseURL: c.URL_OF_SERVER, apiKey: "none", maxRetries: 0, timeout: 120_000 });
const chats = client.chat.completions;
const response = { model: c.CHAT, input: c.QUESTION, temperature: 0, max_output_tokens: c.TOKENS };
const Person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(150) });
const Weather = z.object({ town: z.enum(["Rome", "Paris"]), days: z.union([z.literal(1), z.literal(2), z.literal(3)]) });
const told = (call) => [call.function.name, call.function.arguments];
const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

c.add("plain", async () => c.checkAnswer((await chats.create(c.ASK)).choices[0].message.content));

c.add("streamed", async () => {
  const chunks = await c.all(await chats.create({ ...c.ASK, stream: true, stream_options: { include_usage: true } }));
  c.checkAnswer(textOf(chunks));
  const { usage, choices } = chunks.at(-1);
  c.equal([choices, usage.total_tokens], [[], usage.prompt_tokens + usage.completion_tokens]);
});

c.add(".stream()", async () => {
  const stream = chats.stream(c.ASK);
  let said = "";
  stream.on("content", (delta) => (said += delta));
  c.checkAnswer(await stream.finalContent());
  c.checkAnswer(said);
});

async function called(tool) {
  const ask = { ...c.ASK, ...c.CALLED, tools: [tool] };
  const [call] = (await chats.create(ask)).choices[0].message.tool_calls;
  c.checkCall(...told(call));
  const [built] = (await chats.stream(ask).finalChatCompletion()).choices[0].message.tool_calls;
  c.equal(told(built), told(call));
  const pieces = (await c.all(await chats.create({ ...ask, stream: true }))).flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
  c.equal(pieces.map((piece) => piece.function.arguments ?? "").join(""), call.function.arguments);
}

c.add("tool, plain and streamed", () => called({ type: "function", function: c.FUNCTION }));
c.add("strict tool, plain and streamed", () => called({ type: "function", function: { ...c.FUNCTION, strict: true } }));

c.add("strict tool of zod, parsed", async () => {
  const ask = { ...c.ASK, ...c.CALLED, tools: [zodFunction({ name: "weather", parameters: Weather })] };
  const whole = await chats.parse(ask);
  const built = await chats.stream(ask).finalChatCompletion();
  for (const { choices } of [whole, built]) c.checkCall("weather", choices[0].message.tool_calls[0].function.parsed_arguments);
});

c.add("function called", async () => {
  const calls = [];
  const run = (given) => (calls.push(given), "sunny");
  const tool = { type: "function", function: { ...c.FUNCTION, function: run, parse: JSON.parse } };
  const choice = { type: "function", function: { name: "weather" } };
  for (const stream of [false, true]) {
    const runner = chats.runTools({ ...c.ASK, tools: [tool], tool_choice: choice, stream });
    await runner.done();
  }
  c.equal(calls.length, 2);
  calls.forEach((given) => c.checkCall("weather", given));
});

c.add("JSON schema, plain and streamed", async () => {
  const form = { type: "json_schema", json_schema: { name: "person", schema: c.PERSON, strict: true } };
  const { content } = (await chats.create({ ...c.ASK, response_format: form })).choices[0].message;
  c.checkPerson(content);
  c.equal(await chats.stream({ ...c.ASK, response_format: form }).finalContent(), content);
});

c.add("JSON schema of zod, parsed", async () => {
  const ask = { ...c.ASK, response_format: zodResponseFormat(Person, "person") };
  c.checkPerson((await chats.parse(ask)).choices[0].message.parsed);
  c.checkPerson((await chats.stream(ask).finalChatCompletion()).choices[0].message.parsed);
});

c.add("responses, plain and streamed", async () => {
  c.checkAnswer((await client.responses.create(response)).output_text);
  const events = await c.all(await client.responses.create({ ...response, stream: true }));
  c.checkAnswer(events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta).join(""));
  c.checkAnswer((await client.responses.stream(response).finalResponse()).output_text);
});

c.add("responses: strict tool, plain and streamed", async () => {
  const ask = { ...response, ...c.CALLED, tools: [{ type: "function", strict: true, ...c.FUNCTION }] };
  const [call] = (await client.responses.create(ask)).output;
  c.checkCall(call.name, call.arguments);
  const [built] = (await client.responses.stream(ask).finalResponse()).output;
  c.equal([built.name, built.arguments], [call.name, call.arguments]);
});

c.add("responses: JSON schema, plain and streamed", async () => {
  const ask = { ...response, text: { format: zodTextFormat(Person, "person") } };
  c.checkPerson((await client.responses.parse(ask)).output_parsed);
  c.checkPerson((await client.responses.stream(ask).finalResponse()).output_parsed);
});

c.add("text completion, plain and streamed", async () => {
  const ask = { model: c.CHAT, prompt: "The sea is", temperature: 0, max_tokens: c.TOKENS };
  const { text } = (await client.completions.create(ask)).choices[0];
  const pieces = await c.all(await client.completions.create({ ...ask, stream: true }));
  c.equal(pieces.map((piece) => piece.choices[0].text).join(""), text);
});

c.add("embeddings", async () => {
  const { data } = await client.embeddings.create({ model: c.ENCODER, input: c.TEXTS });
  await c.checkVectors(data.map((one) => one.embedding));
});

c.add("errors", async () => {
  const error = await chats.create({ ...c.ASK, model: "words" }).catch((raised) => raised);
  c.equal(error instanceof NotFoundError, true);
});
