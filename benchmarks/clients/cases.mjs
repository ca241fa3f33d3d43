// Cases of a client for node, as `cases.py` has them for Python: `node cases.mjs PACKAGES SCRIPT URL ANSWER` runs a script
// with the packages of a `node_modules` folder. The script adds cases; each prints a line of JSON.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, script, url, answer] = process.argv.slice(2);
const found = createRequire(join(packages, "none.js"));

export const URL_OF_SERVER = url;
export const CHAT = "chat";
export const ENCODER = "encoder";
export const QUESTION = "What is the weather in Rome? Answer in one word.";
export const TOKENS = 80;
export const TEXTS = ["the cat", "a dog"];
export const MESSAGES = [{ role: "user", content: QUESTION }];
export const ASK = { model: CHAT, messages: MESSAGES, temperature: 0, max_tokens: TOKENS };
export const CALLED = { tool_choice: "required", parallel_tool_calls: false };
export const WEATHER = {
  type: "object",
  properties: { town: { type: "string", enum: ["Rome", "Paris"] }, days: { type: "integer", enum: [1, 2, 3] } },
  required: ["town", "days"],
  additionalProperties: false,
};
export const FUNCTION = { name: "weather", description: "Tells the weather of a town.", parameters: WEATHER };
export const PERSON = {
  type: "object",
  properties: { name: { type: "string", maxLength: 12 }, age: { type: "integer", minimum: 0, maximum: 150 } },
  required: ["name", "age"],
  additionalProperties: false,
};

const cases = [];
/** Add a case: an asynchronous function that throws where the client or the server went wrong. */
export const add = (name, tried) => cases.push([name, tried]);
/** Import a package from the folder that was named. */
export const packaged = (name) => import(pathToFileURL(found.resolve(name)).href);

export const equal = (one, other) => assert.deepEqual(one, other);
export const checkAnswer = (text) => equal(text?.trim(), answer.trim());

/** A call must be one of `weather` with arguments of its schema. */
export function checkCall(name, given) {
  const told = typeof given === "string" ? JSON.parse(given) : given;
  equal(name, "weather");
  equal(Object.keys(told).sort(), ["days", "town"]);
  assert(WEATHER.properties.town.enum.includes(told.town) && WEATHER.properties.days.enum.includes(told.days));
}

/** A structured answer must be a person, as JSON or as what that says. */
export function checkPerson(given) {
  const told = typeof given === "string" ? JSON.parse(given) : given;
  equal(Object.keys(told).sort(), ["age", "name"]);
  assert(typeof told.name === "string" && told.name.length <= 12);
  assert(Number.isInteger(told.age) && told.age >= 0 && told.age <= 150);
}

/** Vectors of `TEXTS` must be those that a plain request has. */
export async function checkVectors(vectors) {
  const body = JSON.stringify({ model: ENCODER, input: TEXTS });
  const headers = { "Content-Type": "application/json" };
  const { data } = await (await fetch(`${url}/embeddings`, { method: "POST", headers, body })).json();
  equal(vectors.map((vector) => vector.length), data.map((one) => one.embedding.length));
  data.forEach((one, i) => one.embedding.forEach((x, j) => assert(Math.abs(x - vectors[i][j]) < 1e-6)));
}

/** Return all items of an asynchronous stream. */
export async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

async function main() {
  await import(pathToFileURL(script).href); // it imports this module, which is the same one
  for (const [name, tried] of cases) {
    let wrong = null;
    try {
      await tried();
    } catch (error) {
      console.error(error);
      wrong = `${error.name}: ${error.message}`;
    }
    console.log(`{"case": ${JSON.stringify(name)}, "wrong": ${JSON.stringify(wrong)}}`);
  }
}

main(); // not awaited: the script waits for this module to be there
