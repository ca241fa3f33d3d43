// Files of a network from a server; pieces that earlier visits fetched, whole or in part, are not fetched again.

import { DamagedFileError, FormatError } from "./errors.js";
import { bytesFrom, fetched } from "./fetch_bytes.js";
import { checkedPiece, wrongLength } from "./sources.js";

/** A network behind an address: of its folder, or of its network.json. */
export class UrlSource {
  #base;
  #signal;
  #stored;

  constructor(url, { signal = null, addresses = {} } = {}) {
    const address = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
    if (!address.pathname.endsWith(".json") && !address.pathname.endsWith("/")) address.pathname += "/";
    this.#base = address.href;
    this.#signal = signal;
    this.#stored = addresses["stored_files.js"] ?? new URL("./stored_files.js", import.meta.url).href;
  }

  /** Return the parsed network.json. */
  json() {
    return this.file(this.#base.endsWith("/") ? "network.json" : this.#base);
  }

  /** Return the parsed contents of another JSON file of the folder. */
  async file(name) {
    const address = new URL(name, this.#base).href;
    const text = await (await fetched(address, { signal: this.#signal })).text();
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new FormatError(`${address} is not JSON: ${error.message}.`, "The file may be cut off: copy or export it again.");
    }
  }

  /**
   * Return the checked bytes of a piece.
   * @param {{file: string, bytes: number, sha256: string}} piece
   * @param {(bytes: number, fromCache: boolean) => void} progress called with the bytes of it that are here
   */
  async piece(piece, progress = () => {}) {
    const { dropFile, storeFile, storedFile } = await import(this.#stored);
    const stored = await storedFile(piece.sha256), bytes = new Uint8Array(piece.bytes);
    const cached = stored && stored.size <= piece.bytes ? await stored.read(0, stored.size).catch(() => []) : [];
    bytes.set(cached);
    if (cached.length) progress(cached.length, true);
    let at = cached.length, store = null;
    try {
      if (at < piece.bytes) {
        store = await storeFile(piece.sha256, { address: new URL(".", this.#base).href, size: piece.bytes }, at);
        at = await this.#download(piece, bytes, at, store, progress);
      }
      return await checkedPiece(piece, bytes.subarray(0, at));
    } catch (error) {
      if (!(error instanceof DamagedFileError)) throw error;
      await store?.close();
      await dropFile(piece.sha256);
      if (!cached.length) throw error;
      return await this.piece(piece, progress); // what was stored is damaged
    } finally {
      await store?.close();
    }
  }

  /** Fetch the rest of a piece; returns how many bytes there are. */
  async #download(piece, bytes, at, store, progress) {
    const check = ({ size }) => {
      if (size !== null && size !== piece.bytes) throw wrongLength(piece);
      return true;
    };
    for await (const part of bytesFrom(new URL(piece.file, this.#base).href, at, { signal: this.#signal, check })) {
      if (at + part.length > piece.bytes) throw wrongLength(piece);
      bytes.set(part, at);
      at += part.length;
      await store?.write(part);
      progress(at, false);
    }
    return at;
  }
}
