// The engine's side of the worker. Messages: {call, method, args} and {cancel} come in; {call, event | result | error} go out.
// A source that only the page has is asked for through {ask, method, args}, answered by {answer, result | error}.

import { errorData, errorOf } from "./errors.js";
import { openMachine } from "./machine.js";

let machine = null;
const signals = new Map();
const asked = new Map();
let asks = 0;

const ask = (method, args) => new Promise((resolve, reject) => {
  asked.set(++asks, { resolve, reject });
  postMessage({ ask: asks, method, args });
});

const pageSource = { json: () => ask("json", []), piece: number => ask("piece", [number]), file: name => ask("file", [name]) };

async function perform({ call, method, args }) {
  const controller = new AbortController();
  signals.set(call, controller);
  const emit = event => postMessage({ call, event });
  try {
    let result;
    if (method === "load") {
      const [options] = args;
      if (globalThis.ownAddresses) options.addresses = globalThis.ownAddresses;
      machine = await openMachine(options, pageSource, emit, controller.signal);
      result = machine.info;
      machine.lost.then(error => postMessage({ lost: errorData(error) }));
    } else {
      result = await machine.call(method, args, emit, controller.signal);
    }
    postMessage({ call, result }, buffersOf(result));
  } catch (error) {
    postMessage({ call, error: errorData(error) });
  } finally {
    signals.delete(call);
  }
}

/** Buffers of a result, which go to the page without a copy. */
function buffersOf(result) {
  const values = result instanceof ArrayBuffer || ArrayBuffer.isView(result) ? [result] : Object.values(result ?? {});
  return [...new Set(values.map(value => value?.buffer ?? value).filter(value => value instanceof ArrayBuffer))];
}

onmessage = ({ data }) => {
  if (data.cancel) signals.get(data.cancel)?.abort();
  else if (data.answer) {
    const { resolve, reject } = asked.get(data.answer);
    asked.delete(data.answer);
    if (data.error) reject(errorOf(data.error));
    else resolve(data.result);
  } else if (data.call) void perform(data);
};
