// The worker of a page that is a single file. Pages that are files may start no module, and a worker cannot import their blobs:
// so a script makes the blobs in the worker, and hands on what arrives meanwhile.

/**
 * Start a worker.
 * @param {[string, string][]} modules name and text of the engine's modules, each after those that it imports
 */
export function startWorkerOf(modules) {
  const script = `const early = [], addresses = {};
    onmessage = one => early.push(one);
    for (const [name, text] of ${JSON.stringify(modules)}) {
      const whole = text.replace(/(\\b(?:from|import)\\s*)"(?:\\.|@[a-z]+)\\/([^"]+)"/g, (all, word, other) => word + JSON.stringify(addresses[other]));
      addresses[name] = URL.createObjectURL(new Blob([whole], { type: "text/javascript" }));
    }
    globalThis.ownAddresses = addresses;
    import(addresses["worker.js"]).then(() => early.forEach(one => onmessage(one)), error => setTimeout(() => { throw error; }));`;
  return new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })), { name: "volumetric" });
}
