// A file that is read once from its beginning to its end, with jumps over what nobody needs: one that the visitor opened, or
// one of a server, of which earlier visits may have stored a part.

import { FetchError } from "../errors.js";
import { bytesFrom } from "../fetch_pieces.js";
import { sha256 } from "../sources.js";

const PART = 2 ** 20; // bytes that are read from a disk at a time
const WORTH_A_JUMP = 2 ** 22; // a new request takes as long as so many bytes
const SAME = ["size", "etag", "modified"]; // what stays while a file is the same

/** Reads a file forwards. */
export class ForwardReader {
  #file;
  #rest = new Uint8Array(0); // read, and not asked for yet

  /** @param {OpenedFile | ServedFile} file opened */
  constructor(file) {
    this.#file = file;
  }

  /** Where the next bytes are. */
  get at() {
    return this.#file.at - this.#rest.length;
  }

  /** Return whatever comes next. */
  async next() {
    const bytes = this.#rest.length ? this.#rest : await this.#file.next();
    this.#rest = new Uint8Array(0);
    if (!bytes) throw new FetchError(`${this.#file.name} ends at byte ${this.at} of ${this.#file.size}.`, "It was changed while it was read: load it again.");
    return bytes;
  }

  /** Let the last bytes that were read come again. */
  putBack(bytes) {
    this.#rest = bytes;
  }

  /** Return the bytes from a place on, which is not before those that were read. */
  async read(start, length) {
    if (start - this.#file.at > WORTH_A_JUMP) {
      this.#rest = new Uint8Array(0);
      await this.#file.jump(start);
    }
    const result = new Uint8Array(length);
    for (let missing = length; missing;) {
      const from = this.at, bytes = await this.next(), first = Math.min(Math.max(start - from, 0), bytes.length);
      const part = bytes.subarray(first, first + missing);
      result.set(part, length - missing);
      missing -= part.length;
      this.putBack(bytes.subarray(first + part.length));
    }
    return result;
  }

  /** Pass over the rest of the file. */
  async end() {
    if (this.#file.size - this.#file.at > WORTH_A_JUMP) await this.#file.jump(this.#file.size);
    while (this.#file.at < this.#file.size && await this.#file.next());
  }
}

/** A file on the visitor's disk. */
export class OpenedFile {
  #blob;
  cached = false;
  at = 0;

  /** @param {Blob} blob a `File`, mostly */
  constructor(blob) {
    this.#blob = blob;
    this.name = blob.name ?? "The file";
    this.size = blob.size;
  }

  async open() {}

  /** Return the next bytes, null at the end. */
  async next() {
    const part = this.#blob.slice(this.at, this.at + PART);
    try {
      const bytes = new Uint8Array(await part.arrayBuffer());
      this.at += bytes.length;
      return bytes.length ? bytes : null;
    } catch (error) {
      throw new FetchError(`${this.name} cannot be read: ${error.message}`, "It may have been changed or moved: choose it again.");
    }
  }

  /** Go on at another place. */
  async jump(to) {
    this.at = to;
  }

  async close() {}
}

/** A file of a server. What arrives is stored; what is stored and is still the same on the server is not fetched. */
export class ServedFile {
  #address;
  #signal;
  #files;
  #key;
  #about = null; // what the server says of the file
  #stored = null; // what an earlier visit stored
  #store = null; // where this one does
  #arriving = null;
  #first = null; // bytes that arrived with the answer
  at = 0;

  /**
   * @param {string} address
   * @param {object} files the module stored_files.js
   */
  constructor(address, files, signal = null) {
    this.#address = this.name = address;
    this.#files = files;
    this.#signal = signal;
  }

  /** Ask the server for the file, from where an earlier visit stopped. */
  async open() {
    this.#key = await sha256(new TextEncoder().encode(this.#address));
    const stored = await this.#files.storedFile(this.#key);
    if (stored?.size) await this.#goOn(stored);
    if (this.#stored) return;
    await this.#request(0);
    if (this.#isKnown) this.#store = await this.#files.storeFile(this.#key, { address: this.#address, ...this.#about });
  }

  /** Take what is stored, if the file on the server is still the same. */
  async #goOn(stored) {
    const { record, size } = stored, complete = size === record.size;
    let same = false;
    try {
      await this.#request(complete ? size - 1 : size, about => {
        same = this.#isKnown && SAME.every(name => about[name] === record[name]);
        return same && !complete;
      });
    } catch (error) {
      if (error.status !== 416) throw error; // it is shorter now
    }
    if (same && !complete) this.#store = await this.#files.storeFile(this.#key, record, size);
    if (same) this.#stored = complete ? stored : this.#store; // null: another page writes it
    else await this.#files.dropFile(this.#key);
    if (this.#stored) this.#about = record;
    if (complete || !this.#stored) await this.#hangUp();
  }

  /** Without a mark of its version, nobody can say whether the file is still the same. */
  get #isKnown() {
    return Boolean(this.#about.etag || this.#about.modified);
  }

  /** Bytes of the file. */
  get size() {
    return this.#about.size;
  }

  /** Whether the next bytes are those of an earlier visit. */
  get cached() {
    return this.at < Math.min(this.#end, this.#gap);
  }

  /** Return the next bytes, null at the end. */
  async next() {
    let bytes;
    if (this.at < this.#end && !this.cached) await this.#leaveStore(); // an earlier visit left out what this one needs
    if (this.cached) {
      bytes = await this.#fromStore(Math.min(this.at + PART, this.#end, this.#gap));
    } else {
      this.#arriving ??= bytesFrom(this.#address, this.at, this.#options);
      bytes = this.#first ?? (await this.#arriving.next()).value ?? null;
      this.#first = null;
      if (bytes) await this.#store?.write(bytes);
    }
    this.at += bytes?.length ?? 0;
    return bytes;
  }

  /** Go on at a place behind this one; what is between is neither fetched nor stored. */
  async jump(to) {
    if (to > this.#end) {
      await this.#hangUp();
      await this.#store?.skip(to);
    }
    this.at = to;
  }

  close() {
    return this.#leaveStore();
  }

  /** Where the bytes of an earlier visit end. */
  get #end() {
    return this.#stored?.size ?? 0;
  }

  /** Where the next part begins that an earlier visit left out. */
  get #gap() {
    return this.#about.gaps?.find(([, to]) => this.at < to)?.[0] ?? Infinity;
  }

  /** Begin to fetch the file from a place on, and learn of it. */
  async #request(at, wanted = () => true) {
    this.#about = null;
    this.#arriving = bytesFrom(this.#address, at, { ...this.#options, check: about => this.#check(about) && wanted(about) });
    this.#first = (await this.#arriving.next()).value ?? null;
  }

  get #options() {
    return { signal: this.#signal, cache: "no-store", check: about => this.#check(about) }; // it is stored here, not twice
  }

  #check(about) {
    if (about.size === null) throw new FetchError(`The server does not say how long ${this.#address} is.`, "It must send Content-Length, and no Content-Encoding.");
    this.#about ??= about;
    if (SAME.some(name => about[name] !== this.#about[name])) throw new FetchError(`${this.#address} was changed on the server while it was read.`, "Load it again.");
    return true;
  }

  async #fromStore(to) {
    try {
      return await this.#stored.read(this.at, to);
    } catch (error) {
      throw new FetchError(`What the browser has stored of ${this.#address} cannot be read: ${error.message}`, "Another page may have dropped it: load it again.");
    }
  }

  /** Go on with what the server has, and store nothing. */
  async #leaveStore() {
    await this.#hangUp();
    await this.#store?.close();
    this.#stored = this.#store = null;
  }

  async #hangUp() {
    await this.#arriving?.return();
    this.#arriving = this.#first = null;
  }
}
