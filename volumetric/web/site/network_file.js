// network.json, checked: what a reader of the format (docs/web_format.md) may rely on, whoever wrote the file.

import { FormatError } from "./errors.js";

const FORMAT = "volumetric.web";
const VERSION = 1;
export const MOST_PIECE_BYTES = 64 * 2 ** 20;
const FILE = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,200}$/;
const KINDS = ["rows", "sequences", "stream", "ticks", "language", "encoder", "population", "learner"];
const SECTIONS = { ticks: ["ticks"], language: ["calls", "language"], encoder: ["calls", "encoder"], stream: ["calls"], sequences: ["calls"], rows: ["calls"] };
const AGAIN = "Export the network again with `volumetric export --web`.";

/** Return what a check of network.json refuses as an error. */
export function wrong(what) {
  return new FormatError(`network.json: ${what}.`, AGAIN);
}

export const isObject = value => typeof value === "object" && value !== null && !Array.isArray(value);
export const isWhole = (value, least = 0, most = Number.MAX_SAFE_INTEGER) => Number.isSafeInteger(value) && value >= least && value <= most;

/** An error of something that no check of network.json foresees, as one of the engine. */
export function foreseen(error) {
  const own = error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError;
  return own ? wrong(`something in it is not as the format has it (${error.message})`) : error;
}

/** Return the parsed network.json, or raise `FormatError`. */
export function checkNetwork(network) {
  if (!isObject(network) || network.format !== FORMAT) throw new FormatError("This is not a network.json of volumetric.", AGAIN);
  if (!isWhole(network.version, 1)) throw wrong("version must be a whole number");
  if (network.version > VERSION) {
    throw new FormatError(`network.json has version ${network.version} of the format; this engine reads up to ${VERSION}.`, "Use the engine.js that was exported with it.");
  }
  if (network.version < VERSION) throw new FormatError(`network.json has version ${network.version} of the format, which is no longer read.`, AGAIN);
  if (!KINDS.includes(network.kind)) throw wrong(`unknown kind ${JSON.stringify(network.kind)}`);
  for (const name of SECTIONS[network.kind] ?? []) if (!isObject(network[name])) throw wrong(`a network of the kind ${network.kind} needs ${name}`);
  checkList(network.pieces, "pieces", checkPiece);
  checkList(network.modules, "modules", text => typeof text === "string");
  checkList(network.variants, "variants", one => isObject(one) && isObject(one.programs) && isObject(one.needs ?? {}));
  if (!network.variants.length) throw wrong("there are no variants");
  for (const group of ["inputs", "outputs"]) {
    if (!isObject(network[group])) throw wrong(`${group} must be an object`);
    for (const [name, port] of Object.entries(network[group])) checkPort(port, `${group}.${name}`);
  }
  checkList(network.states ?? [], "states", name => typeof name === "string");
  if (network.calls) checkCalls(network.calls);
  return network;
}

function checkList(list, name, fits) {
  if (!Array.isArray(list)) throw wrong(`${name} must be a list`);
  list.forEach((item, i) => {
    if (!fits(item)) throw wrong(`${name}[${i}] is not valid`);
  });
}

function checkPiece(piece) {
  return isObject(piece) && FILE.test(piece.file) && isWhole(piece.bytes, 0, MOST_PIECE_BYTES) && /^[0-9a-f]{64}$/.test(piece.sha256);
}

export function checkPort(port, name) {
  const fits = isObject(port) && typeof port.buffer === "string" && ["float32", "int32"].includes(port.dtype)
    && Array.isArray(port.shape) && port.shape.every(size => isWhole(size, 1, 2 ** 31)) && isWhole(port.stride, 4, 2 ** 32) && port.stride % 4 === 0;
  if (!fits || 4 * port.shape.reduce((a, b) => a * b, 1) > port.stride) throw wrong(`${name} is not a valid port`);
}

function checkCalls(calls) {
  checkList(calls.programs, "calls.programs", one => isObject(one) && typeof one.program === "string" && isWhole(one.rows, 1, 2 ** 24));
  if (!calls.programs.length) throw wrong("calls.programs is empty");
  if (calls.control !== null) checkControl(calls.control, "calls.control");
}

/** Check where a control block is, and the constants in it. */
export function checkControl(control, name) {
  const fits = isObject(control) && typeof control.buffer === "string" && isWhole(control.block, 1, 2 ** 16) && isWhole(control.places, 1, 2 ** 16) && isWhole(control.owners, 0, 2 ** 16)
    && isWhole(control.line, 0, 2 ** 31) && Array.isArray(control.pages) && control.pages.length <= 56 && control.pages.every(page => isWhole(page, 0, 2 ** 32 - 1));
  if (!fits) throw wrong(`${name} is not valid`);
}

/** Return a name of another file of the folder, or raise `FormatError`. */
export function checkFileName(file) {
  if (typeof file !== "string" || !FILE.test(file)) throw wrong(`${JSON.stringify(file)} is not the name of a file beside it`);
  return file;
}

/** Check the buffers of a variant. */
export function checkBuffers(variant, pieces) {
  checkList(variant.buffers, "buffers", one => isObject(one) && typeof one.name === "string" && isWhole(one.bytes, 16, 2 ** 34) && one.bytes % 16 === 0);
  if (new Set(variant.buffers.map(one => one.name)).size !== variant.buffers.length) throw wrong("two buffers have the same name");
  for (const { name, bytes, parts = [] } of variant.buffers) {
    const fits = Array.isArray(parts) && parts.every(part => Array.isArray(part) && partFits(part, pieces));
    if (!fits || parts.reduce((sum, [, , length]) => sum + length, 0) > bytes) throw wrong(`buffer ${JSON.stringify(name)} lies outside of its pieces`);
  }
}

const partFits = ([piece, offset, bytes], pieces) =>
  isWhole(piece, 0, pieces.length - 1) && [offset, bytes].every(value => isWhole(value) && value % 4 === 0) && offset + bytes <= pieces[piece].bytes;
