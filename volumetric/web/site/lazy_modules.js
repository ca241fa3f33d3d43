// Modules that a network needs only for some of its methods. The imports are literal, so that bundlers follow them; a page
// that is one file names addresses of its own.

import { FetchError } from "./errors.js";

const MODULES = {
  "calls.js": () => import("./calls.js"),
  "streams.js": () => import("./streams.js"),
  "ticks.js": () => import("./ticks.js"),
  "lane_probe.js": () => import("./lane_probe.js"),
  "text.js": () => import("./text.js"),
  "language.js": () => import("./language.js"),
  "encoder.js": () => import("./encoder.js"),
  "stored_files.js": () => import("./stored_files.js"),
  "gguf/model_source.js": () => import("./gguf/model_source.js"),
  "learner.js": () => import("./learner.js"),
  "neat/population.js": () => import("./neat/population.js"),
};

/** Return a promise of a module; raises `FetchError`. */
export async function imported(name, addresses = {}) {
  const address = addresses[name];
  try {
    return await (address ? import(/* webpackIgnore: true */ /* @vite-ignore */ address) : MODULES[name]());
  } catch (error) {
    throw new FetchError(`${name} of the engine cannot be loaded: ${error.message}`, "Copy all files of the engine, and load the page again.");
  }
}
