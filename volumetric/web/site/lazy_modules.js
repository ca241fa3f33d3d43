// Modules that a network needs only for some of its methods. The imports are literal, so that bundlers follow them; a page
// that is one file names addresses of its own.

const MODULES = {
  "calls.js": () => import("./calls.js"),
  "streams.js": () => import("./streams.js"),
  "text.js": () => import("./text.js"),
  "language.js": () => import("./language.js"),
  "encoder.js": () => import("./encoder.js"),
  "learner.js": () => import("./learner.js"),
  "neat/population.js": () => import("./neat/population.js"),
};

/** Return a promise of a module. */
export function imported(name, addresses = {}) {
  const address = addresses[name];
  return address ? import(/* webpackIgnore: true */ /* @vite-ignore */ address) : MODULES[name]();
}
