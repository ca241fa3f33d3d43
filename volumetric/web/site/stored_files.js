// Files that earlier visits fetched, whole or in part, in the browser's private file system (OPFS). Each has a record beside
// it: {address, size, …} as JSON. Where there is no such file system, or no room, nothing is stored and loading works.

import { EngineError } from "./errors.js";

const FOLDER = "volumetric", RECORD = ".json";
const FLUSH = 2 ** 25; // bytes after which what was written is made safe
const TRIES = 5, PAUSE = 100; // ms: a page that was closed may hold its file for a moment

/** The folder, or null. */
async function folder(create = false) {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create });
  } catch {
    return null; // pages that are files, private windows, browsers without it
  }
}

/** Read parts of a blob. */
const readerOf = blob => async (from, to) => new Uint8Array(await blob.slice(from, to).arrayBuffer());

/** Open a file of which the first bytes stay: what is written is there at once in a worker, when it is closed in a page. */
async function openFile(handle, from) {
  if (!handle.createSyncAccessHandle) {
    const read = readerOf(await handle.getFile()), stream = await handle.createWritable({ keepExistingData: from > 0 });
    return {
      read, write: (bytes, at) => stream.write({ type: "write", position: at, data: bytes }),
      flush() {}, truncate: size => stream.truncate(size), close: () => stream.close(),
    };
  }
  for (let attempt = 1; ; attempt++) {
    try {
      const access = await handle.createSyncAccessHandle();
      if (access.getSize() < from) throw new RangeError("It is shorter now.");
      access.truncate(from);
      return {
        read(start, stop) {
          const bytes = new Uint8Array(stop - start);
          access.read(bytes, { at: start });
          return bytes;
        },
        write(bytes, at) {
          if (access.write(bytes, { at }) < bytes.length) throw new RangeError("There is no room.");
        },
        flush: () => access.flush(), truncate: size => access.truncate(size), close: () => access.close(),
      };
    } catch (error) {
      if (attempt >= TRIES) throw error;
      await new Promise(done => setTimeout(done, PAUSE));
    }
  }
}

async function writeRecord(home, key, record) {
  const writer = await openFile(await home.getFileHandle(key + RECORD, { create: true }), 0);
  await writer.write(new TextEncoder().encode(JSON.stringify(record)), 0);
  await writer.close();
}

async function readRecord(home, key) {
  const record = JSON.parse(await (await (await home.getFileHandle(key + RECORD)).getFile()).text());
  if (typeof record?.address !== "string" || !Number.isSafeInteger(record.size)) throw new TypeError("no record");
  return record;
}

/**
 * Return {record, size, read(from, to)} of a file, of which the first `size` bytes are there; null if there is none. While a
 * part of a file is stored, only `storeFile` can read it.
 */
export async function storedFile(key) {
  try {
    const home = await folder();
    const record = await readRecord(home, key), blob = await (await home.getFileHandle(key)).getFile();
    return blob.size <= record.size ? { record, size: blob.size, read: readerOf(blob) } : null;
  } catch {
    return null;
  }
}

/** Return what stores a file, and reads its first `from` bytes, which are there; null if it cannot be stored. */
export async function storeFile(key, record, from = 0) {
  try {
    const home = await folder(true);
    if (!from) await writeRecord(home, key, record);
    return new Store(key, record, await openFile(await home.getFileHandle(key, { create: true }), from), from);
  } catch {
    return null; // another page writes it, or there is no room
  }
}

/** A file that grows. If there is no room for it, nothing of it stays. */
class Store {
  #key;
  #record;
  #file;
  #at;
  #unsafe = 0;

  constructor(key, record, file, at) {
    this.#key = key;
    this.#record = record;
    this.#file = file;
    this.#at = this.size = at;
    this.read = file.read;
  }

  /** Write the next bytes of the file. */
  write(bytes) {
    return this.#attempt(async file => {
      await file.write(bytes, this.#at);
      this.#at += bytes.length;
      this.#unsafe += bytes.length;
      if (this.#unsafe < FLUSH) return;
      await file.flush();
      this.#unsafe = 0;
    });
  }

  /** Leave bytes out, up to a place. */
  skip(to) {
    return this.#attempt(async file => {
      (this.#record.gaps ??= []).push([this.#at, to]);
      await writeRecord(await folder(), this.#key, this.#record);
      await file.truncate(this.#at = to);
    });
  }

  async close() {
    const file = this.#file;
    this.#file = null;
    await file?.close();
  }

  async #attempt(work) {
    if (!this.#file) return;
    try {
      await work(this.#file);
    } catch {
      await this.close().catch(() => {});
      await dropFile(this.#key);
    }
  }
}

/** Drop a file, if it is there and no page writes it. */
export async function dropFile(key) {
  const home = await folder();
  try {
    await home?.removeEntry(key);
  } catch (error) {
    if (error.name !== "NotFoundError") return;
  }
  await home?.removeEntry(key + RECORD).catch(() => {});
}

/** The records of all files: key → {address, size, bytes}. */
async function records() {
  const home = await folder(), all = new Map();
  for await (const name of home?.keys() ?? []) {
    if (name.endsWith(RECORD)) continue;
    try {
      const { size: bytes } = await (await home.getFileHandle(name)).getFile();
      const { address, size } = await readRecord(home, name);
      all.set(name, { address, size, bytes });
    } catch {
      await dropFile(name); // without a record nobody can use it
    }
  }
  return all;
}

/** What is stored, by the address of each model. */
export async function storedModels() {
  const models = new Map();
  for (const { address, size, bytes } of (await records()).values()) {
    const model = models.get(address) ?? { address, bytes: 0, complete: true };
    model.bytes += bytes;
    model.complete &&= bytes === size;
    models.set(address, model);
  }
  return [...models.values()];
}

/** Drop what is stored of an address; returns how many bytes that were. */
export async function forgetModel(address) {
  let freed = 0;
  for (const [key, record] of await records()) {
    if (record.address !== address) continue;
    await dropFile(key);
    if (await storedFile(key)) throw new EngineError(`${address} is being loaded, so it cannot be forgotten.`, "Close the other page that loads it, and try again.");
    freed += record.bytes;
  }
  return freed;
}
