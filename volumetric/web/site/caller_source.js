// A network that the page holds itself: `{json(), piece(i), file?(name)}`, whose pieces are whole.

import { bytesOfBase64 } from "./buffers.js";
import { checkedPiece } from "./checked_pieces.js";
import { FormatError } from "./errors.js";

/** A source of a caller: `json()` gives network.json, parsed or as text, `piece(i)` bytes or base64 text. */
export class CallerSource {
  #caller;
  #pieces = [];

  constructor(caller) {
    this.#caller = caller;
  }

  async json() {
    const network = parse(await this.#caller.json(), "network.json");
    this.#pieces = Array.isArray(network?.pieces) ? network.pieces : [];
    return network;
  }

  async file(name) {
    if (!this.#caller.file) throw new FormatError(`The page has no ${name}.`, "Export it again with --single-file.");
    return parse(await this.#caller.file(name), name);
  }

  async piece(piece, progress = () => {}) {
    const contents = await this.#caller.piece(this.#pieces.indexOf(piece));
    const bytes = typeof contents === "string" ? bytesOfBase64(contents.trim()) : new Uint8Array(contents.buffer ?? contents, contents.byteOffset ?? 0, contents.byteLength);
    progress(bytes.length, false);
    return checkedPiece(piece, bytes);
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
