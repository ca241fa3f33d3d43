// What callers pass to the engine, checked before it leaves the page.

import { InputError } from "./errors.js";

/** The options of a method without those that are undefined or null. */
export function optionsOf(method, passed, names) {
  if (typeof (passed ?? {}) !== "object") throw new InputError(`${method}() takes its options as an object.`, `For example {${names[0]}: …}.`);
  const options = Object.fromEntries(Object.entries(passed ?? {}).filter(([, value]) => value !== undefined && value !== null));
  const odd = Object.keys(options).find(name => !names.includes(name));
  if (odd !== undefined) throw new InputError(`${method}() has no option ${JSON.stringify(odd)}.`, `It has: ${names.join(", ")}.`);
  if (options.signal && typeof options.signal.throwIfAborted !== "function") throw new InputError("signal must be an AbortSignal.", "Pass that of an AbortController.");
  return options;
}

/** The address of a network; null for a source of the caller. */
export function addressOf(source) {
  const address = source?.href ?? source;
  if (typeof address === "string") {
    try {
      return new URL(address, globalThis.document?.baseURI ?? globalThis.location?.href).href;
    } catch {
      throw new InputError(`${JSON.stringify(address)} is not an address.`, 'Pass that of the network\'s folder, such as "./model/".');
    }
  }
  if (typeof source?.json === "function" && typeof source.piece === "function") return null;
  throw new InputError("load() takes the address of a network's folder, or a source with json() and piece(i).");
}

/** Raise unless these are messages of a conversation. */
export function checkMessages(messages) {
  const fits = Array.isArray(messages) && messages.length && messages.every(one => typeof one?.role === "string" && ("content" in one || "tool_calls" in one));
  if (!fits) throw new InputError("chat() takes a list of messages, each with a role and content.", 'For example [{role: "user", content: "…"}]; generate() continues a text.');
}
