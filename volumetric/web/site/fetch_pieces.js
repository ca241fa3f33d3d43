// Files of a network from a server: with progress, and resumed where a connection broke.

import { FetchError, FormatError } from "./errors.js";
import { cachedPiece, dropPiece, keepPiece } from "./piece_cache.js";
import { checkedPiece } from "./sources.js";

const TRIES = 4;
const PAUSE = 250; // ms before the first repetition, doubled each time

/** A network behind an address: of its folder, or of its network.json. */
export class UrlSource {
  #base;
  #signal;
  #pause;

  constructor(url, { signal = null, pause = PAUSE } = {}) {
    const address = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
    if (!address.pathname.endsWith(".json")) {
      if (!address.pathname.endsWith("/")) address.pathname += "/";
      address.search = address.hash = "";
    }
    this.#base = address.href;
    this.#signal = signal;
    this.#pause = pause;
  }

  /** Return the parsed network.json. */
  async json() {
    const address = this.#base.endsWith("/") ? new URL("network.json", this.#base).href : this.#base;
    return parsed(await (await this.#fetch(address)).text(), address);
  }

  /** Return the parsed contents of another JSON file of the folder. */
  async file(name) {
    const address = new URL(name, this.#base).href;
    return parsed(await (await this.#fetch(address)).text(), address);
  }

  /**
   * Return the checked bytes of a piece.
   * @param {{file: string, bytes: number, sha256: string}} piece
   * @param {(bytes: number, fromCache: boolean) => void} progress called with the bytes of it that are here
   */
  async piece(piece, progress = () => {}) {
    const hit = await cachedPiece(piece.sha256);
    if (hit) {
      try {
        const bytes = await checkedPiece(piece, hit);
        progress(piece.bytes, true);
        return bytes;
      } catch {
        await dropPiece(piece.sha256);
      }
    }
    const address = new URL(piece.file, this.#base).href;
    const bytes = await checkedPiece(piece, await this.#download(address, piece.bytes, progress));
    await keepPiece(piece.sha256, bytes);
    return bytes;
  }

  /** Fetch so many bytes, going on by ranges where the connection breaks. */
  async #download(address, size, progress) {
    const bytes = new Uint8Array(size);
    let at = 0;
    for (let attempt = 1; ; attempt++) {
      try {
        const answer = await this.#fetch(address, at ? { Range: `bytes=${at}-` } : {});
        if (at && answer.status !== 206) at = 0; // a server without ranges begins anew
        const from = answer.headers.get("Content-Range")?.match(/^bytes (\d+)-/);
        if (at && from && Number(from[1]) !== at) throw new FetchError(`The server sent another part of ${address} than was asked for.`, "Check the server's support of ranges.");
        const length = Number(answer.headers.get("Content-Length"));
        if (!at && length && length !== size && !answer.headers.get("Content-Encoding")) {
          await answer.body.cancel();
          return new Uint8Array(Math.min(length, size - 1)); // of another size: no repetition helps, and the check says so
        }
        const reader = answer.body.getReader();
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
          if (at + part.value.length > size) {
            await reader.cancel();
            return bytes.subarray(0, 0); // longer than it should be: the check says so
          }
          bytes.set(part.value, at);
          at += part.value.length;
          progress(at, false);
        }
        if (at >= size || attempt >= TRIES) return bytes.subarray(0, at);
      } catch (error) {
        if (this.#signal?.aborted) throw this.#signal.reason;
        if (attempt >= TRIES || (error instanceof FetchError && error.final)) throw error;
      }
      await new Promise(done => setTimeout(done, this.#pause * 2 ** (attempt - 1)));
    }
  }

  async #fetch(address, headers = {}) {
    let answer;
    try {
      answer = await fetch(address, { headers, signal: this.#signal });
    } catch (error) {
      if (this.#signal?.aborted) throw this.#signal.reason;
      const file = address.startsWith("file:");
      throw Object.assign(
        new FetchError(`${address} cannot be reached: ${error.message}.`, file
          ? "Browsers do not let a page read files beside it: run `python -m http.server` in its folder and open http://localhost:8000, or export with --single-file."
          : "Check the connection and the address; another host must allow this page (CORS)."), { final: file });
    }
    if (!answer.ok) {
      const hint = answer.status === 404 ? "Check the address; all files of the export (`volumetric export --web`) must lie in one folder." : "Try again later, or ask whoever runs the server.";
      throw Object.assign(new FetchError(`The server answers ${answer.status} for ${address}.`, hint), { final: answer.status < 500 });
    }
    return answer;
  }
}

function parsed(text, address) {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (/^\s*</.test(text)) throw new FormatError(`${address} is a page, not JSON.`, "Check the address: it must be that of a folder of `volumetric export --web`.");
    throw new FormatError(`${address} is not JSON: ${error.message}.`, "The file may be cut off: copy or export it again.");
  }
}
