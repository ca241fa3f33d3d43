// Files of a network from a server, resumed where a connection broke; pieces that earlier visits fetched, whole or in part, are
// not fetched again.

import { DamagedFileError, FetchError, FormatError } from "./errors.js";
import { imported } from "./lazy_modules.js";
import { checkedPiece, wrongLength } from "./sources.js";

const TRIES = 4;
const PAUSE = 250; // ms before the first repetition, doubled each time

/** A network behind an address: of its folder, or of its network.json. */
export class UrlSource {
  #base;
  #signal;
  #addresses;

  constructor(url, { signal = null, addresses = {} } = {}) {
    const address = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
    if (!address.pathname.endsWith(".json")) {
      if (!address.pathname.endsWith("/")) address.pathname += "/";
      address.search = address.hash = "";
    }
    this.#base = address.href;
    this.#signal = signal;
    this.#addresses = addresses;
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
      if (/^\s*</.test(text)) throw new FormatError(`${address} is a page, not JSON.`, "Check the address: it must be that of a folder of `volumetric export --web`.");
      throw new FormatError(`${address} is not JSON: ${error.message}.`, "The file may be cut off: copy or export it again.");
    }
  }

  /**
   * Return the checked bytes of a piece.
   * @param {{file: string, bytes: number, sha256: string}} piece
   * @param {(bytes: number, fromCache: boolean) => void} progress called with the bytes of it that are here
   */
  async piece(piece, progress = () => {}) {
    const { dropFile, storeFile, storedFile } = await imported("stored_files.js", this.#addresses);
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

/** Fetch an address; raises `FetchError`, whose `final` says that no repetition helps. */
async function fetched(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    options.signal?.throwIfAborted();
    const file = address.startsWith("file:");
    throw Object.assign(
      new FetchError(`${address} cannot be reached: ${error.message}.`, file
        ? "Browsers do not let a page read files beside it: run `python -m http.server` in its folder and open http://localhost:8000, or export with --single-file."
        : "Check the connection and the address; another host must allow this page (CORS)."), { final: file });
  }
  if (!answer.ok) {
    const hint = answer.status === 404 ? "Check the address; all files of an export (`volumetric export --web`) must lie in one folder." : "Try again later, or ask whoever runs the server.";
    throw Object.assign(new FetchError(`The server answers ${answer.status} for ${address}.`, hint), { final: answer.status < 500, status: answer.status });
  }
  return answer;
}

/**
 * Yield the bytes of a file from a place on. It goes on where a connection breaks, by ranges; of a server without ranges it
 * passes over what it has.
 * @param {(about: {size: number | null, etag: string | null, modified: string | null}) => boolean} check called with what each
 *   answer says of the whole file, says whether to read it; its errors are final
 */
export async function* bytesFrom(address, at, { signal = null, check = () => true, ...options } = {}) {
  for (let attempt = 1; ; attempt++) {
    let reader = null;
    try {
      const answer = await fetched(address, { ...options, signal, headers: at ? { Range: `bytes=${at}-` } : {} });
      const { headers } = answer, length = headers.get("Content-Length");
      let skip = answer.status === 206 ? 0 : at;
      const from = headers.get("Content-Range")?.match(/^bytes (\d+)-/);
      if (!skip && from && Number(from[1]) !== at) throw new FetchError(`The server sent another part of ${address} than was asked for.`, "Check the server's support of ranges.");
      reader = answer.body.getReader();
      const size = length && !headers.get("Content-Encoding") ? Number(length) + at - skip : null;
      try {
        if (!check({ size, etag: headers.get("ETag"), modified: headers.get("Last-Modified") })) return;
      } catch (error) {
        throw Object.assign(error, { final: true });
      }
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const bytes = part.value.subarray(Math.min(skip, part.value.length));
        skip -= part.value.length - bytes.length;
        if (!bytes.length) continue;
        at += bytes.length;
        attempt = 1; // it goes on
        yield bytes;
      }
      if (!(at < size)) return;
      throw new FetchError(`${address} ends at byte ${at} of ${size}.`, "Check the connection, and load it again.");
    } catch (error) {
      signal?.throwIfAborted();
      if (error.final) throw error;
      if (attempt >= TRIES) throw error instanceof FetchError ? error : new FetchError(`${address} breaks off at byte ${at}: ${error.message}.`, "Check the connection, and load it again: it goes on from there.");
    } finally {
      reader?.cancel().catch(() => {});
    }
    await new Promise(done => setTimeout(done, PAUSE * 2 ** (attempt - 1)));
  }
}
