// Errors for the person who meets them: what failed, and what to do.

export class EngineError extends Error {
  constructor(sentence, hint = "", options = undefined) {
    super(hint ? `${sentence} ${hint}` : sentence, options);
    this.sentence = sentence;
    this.hint = hint;
  }
}

/** This browser offers no WebGPU, or no adapter. */
export class NoWebGPUError extends EngineError {}
/** The GPU has too little memory, or its limits are too small for this network. */
export class DeviceLimitError extends EngineError {}
/** The GPU was lost: the machine slept, the driver restarted, or it ran out of memory. */
export class DeviceLostError extends EngineError {}
/** A file is missing, or cannot be reached. */
export class FetchError extends EngineError {}
/** A file has other bytes than it should. */
export class DamagedFileError extends EngineError {}
/** A file is not in a format that this engine reads. */
export class FormatError extends EngineError {}
/** What the caller passed does not fit the network. */
export class InputError extends EngineError {}
/** No token can be chosen, the context is full, or the chat template fails. */
export class GenerationError extends EngineError {}

const CLASSES = {
  EngineError, NoWebGPUError, DeviceLimitError, DeviceLostError, FetchError, DamagedFileError, FormatError, InputError, GenerationError,
};

for (const [name, one] of Object.entries(CLASSES)) one.prototype.name = name; // bundlers rename the classes themselves

/** An error as plain data, to pass between a worker and its page. */
export function errorData(error) {
  if (error instanceof EngineError) return { name: error.name, sentence: error.sentence, hint: error.hint };
  return { name: error?.name ?? "Error", sentence: String(error?.message ?? error), hint: "" };
}

/** The error of such data. */
export function errorOf({ name, sentence, hint }) {
  if (Object.hasOwn(CLASSES, name)) return new CLASSES[name](sentence, hint);
  if (name === "AbortError") return new DOMException(sentence, name);
  return Object.assign(new EngineError(sentence, hint), { name });
}
