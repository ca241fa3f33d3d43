// Where a network comes from. A source has `json()`, `piece(piece, progress)` and `file(name)`; `{json(), piece(i), file?(name)}`
// of a caller is one whose pieces are whole.

import { DamagedFileError, FormatError, InputError, errorData, errorOf } from "./errors.js";
import { bytesOfBase64 } from "./buffers.js";

/** SHA-256 of bytes as hexadecimal digits; null where the browser has none (pages that are not secure). */
export async function sha256(bytes) {
  if (!globalThis.crypto?.subtle) return null;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, byte => byte.toString(16).padStart(2, "0")).join("");
}

const AGAIN = "Load the page again; if this repeats, copy the files of the export again.";

/** The error of a piece that is shorter or longer than it should be. */
export const wrongLength = piece => new DamagedFileError(`${piece.file} is not of ${piece.bytes} bytes: it is cut off, or of another export.`, AGAIN);

/** Return the bytes of a piece; raises `DamagedFileError` unless they are those that were exported. */
export async function checkedPiece(piece, bytes) {
  if (bytes.length !== piece.bytes) throw wrongLength(piece);
  const sum = await sha256(bytes);
  if (sum !== null && sum !== piece.sha256) throw new DamagedFileError(`${piece.file} is damaged: its checksum is ${sum.slice(0, 12)}…, not ${piece.sha256.slice(0, 12)}….`, AGAIN);
  return bytes;
}

/** A source of a caller: `json()` gives network.json, parsed or as text, `piece(i)` bytes or base64 text. */
export class CallerSource {
  #caller;
  #pieces = [];

  constructor(caller) {
    this.#caller = caller;
  }

  async json() {
    const network = parse(await this.#ask("json"), "network.json");
    this.#pieces = Array.isArray(network?.pieces) ? network.pieces : [];
    return network;
  }

  async file(name) {
    if (!this.#caller.file) throw new FormatError(`The page has no ${name}.`, "Export it again with --single-file.");
    return parse(await this.#ask("file", name), name);
  }

  async piece(piece, progress = () => {}) {
    const contents = await this.#ask("piece", this.#pieces.indexOf(piece));
    if (typeof contents !== "string" && !(contents instanceof ArrayBuffer) && !ArrayBuffer.isView(contents)) throw new InputError("The source's piece(i) must return bytes, or base64.");
    const bytes = typeof contents === "string" ? bytesOfBase64(contents.trim()) : new Uint8Array(contents.buffer ?? contents, contents.byteOffset ?? 0, contents.byteLength);
    progress(bytes.length, false);
    return checkedPiece(piece, bytes);
  }

  async #ask(method, ...args) {
    try {
      return await this.#caller[method](...args);
    } catch (error) {
      throw errorOf(errorData(error)); // the caller's own, which says nothing of network.json
    }
  }
}

function parse(contents, name) {
  if (typeof contents !== "string") return contents;
  try {
    return JSON.parse(contents);
  } catch (error) {
    throw new FormatError(`${name} is not JSON: ${error.message}.`, "The page may be cut off: copy it again.");
  }
}
