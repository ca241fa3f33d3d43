// Buffers of a network on the GPU: created once, filled from pieces as they arrive.

import { DeviceLimitError, DeviceLostError, InputError } from "./errors.js";
import { isWhole, wrong } from "./network_file.js";

/** Bytes of base64 text. */
export function bytesOfBase64(text) {
  let binary;
  try {
    binary = atob(text);
  } catch {
    throw wrong("contents of a buffer are not base64");
  }
  return Uint8Array.from(binary, letter => letter.charCodeAt(0));
}

/**
 * Create the buffers of a variant, in their order.
 * @throws {DeviceLimitError} the GPU has no room for them
 */
export async function createBuffers(device, variant) {
  const total = variant.buffers.reduce((sum, { bytes }) => sum + bytes, 0);
  const base = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const largest = device.limits.maxBufferSize;
  const big = variant.buffers.find(({ bytes }) => bytes > largest);
  if (big) throw new DeviceLimitError(`The network needs a buffer of ${mebibytes(big.bytes)}; this GPU allows ${mebibytes(largest)}.`, "Try another GPU, or export with fewer bits for each weight.");
  device.pushErrorScope("validation");
  device.pushErrorScope("out-of-memory");
  const buffers = variant.buffers.map(({ name, bytes, uniform }) =>
    device.createBuffer({ label: name, size: bytes, usage: base | (uniform ? GPUBufferUsage.UNIFORM : 0) }));
  for (const problem of [await device.popErrorScope(), await device.popErrorScope()]) {
    if (!problem) continue;
    buffers.forEach(buffer => buffer.destroy());
    throw new DeviceLimitError(`The network needs ${mebibytes(total)} on the GPU, which it does not have: ${problem.message}`, "Close other pages and programs that use the GPU, or export a smaller network.");
  }
  return buffers;
}

/** Write the contents that stand in network.json. */
export function writeInline(device, variant, buffers) {
  variant.buffers.forEach(({ name, data, bytes }, i) => {
    if (data === undefined) return;
    const contents = bytesOfBase64(data);
    if (contents.length > bytes) throw wrong(`buffer ${JSON.stringify(name)} is smaller than its contents`);
    writeBytes(device, buffers[i], 0, contents);
  });
}

/** Write what buffers have of a piece. */
export function writePiece(device, variant, buffers, number, bytes) {
  variant.buffers.forEach(({ parts = [] }, i) => {
    let at = 0;
    for (const [piece, offset, length] of parts) {
      if (piece === number) writeBytes(device, buffers[i], at, bytes.subarray(offset, offset + length));
      at += length;
    }
  });
}

/** Raise unless bytes of a buffer are whole words inside of it. */
export function checkRange(name, size, offset, bytes) {
  if (![offset, bytes].every(value => isWhole(value, 0, size) && value % 4 === 0) || offset + bytes > size) {
    throw new InputError(`Buffer ${JSON.stringify(name)} has ${size} bytes; there are no ${bytes} from ${offset} on.`, "Both must be multiples of 4.");
  }
}

/** Write bytes, of which the queue takes only whole words. */
export function writeBytes(device, buffer, offset, bytes) {
  const whole = bytes.length & ~3;
  if (whole) device.queue.writeBuffer(buffer, offset, bytes, 0, whole);
  if (bytes.length > whole) {
    const rest = new Uint8Array(4);
    rest.set(bytes.subarray(whole));
    device.queue.writeBuffer(buffer, offset + whole, rest);
  }
}

/** Reads of buffers, one after the other. */
export class Readback {
  #device;
  #buffer = null;
  #last = Promise.resolve();

  constructor(device) {
    this.#device = device;
  }

  /**
   * Return bytes of buffers, one after the other, as a copy.
   * @param {[GPUBuffer, number, number][]} parts buffer, offset, bytes (multiples of 4)
   * @param {(encoder: GPUCommandEncoder) => void} [before] records what is submitted in front of the copies
   */
  read(parts, before = () => {}) {
    const next = this.#last.then(() => this.#read(parts, before));
    this.#last = next.catch(() => {});
    return next;
  }

  async #read(parts, before) {
    const total = parts.reduce((sum, [, , bytes]) => sum + bytes, 0);
    if (this.#buffer === null || this.#buffer.size < total) {
      this.#buffer?.destroy();
      const size = Math.max(256, 2 ** Math.ceil(Math.log2(total)));
      this.#buffer = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    }
    const encoder = this.#device.createCommandEncoder();
    before(encoder);
    let at = 0;
    for (const [buffer, offset, bytes] of parts) {
      encoder.copyBufferToBuffer(buffer, offset, this.#buffer, at, bytes);
      at += bytes;
    }
    this.#device.queue.submit([encoder.finish()]);
    return mappedCopy(this.#buffer, total);
  }
}

/** Wait for a buffer that the host can map; return a copy of its first bytes. */
export async function mappedCopy(buffer, bytes) {
  try {
    await buffer.mapAsync(GPUMapMode.READ, 0, bytes);
  } catch (error) {
    throw lostError(error.message);
  }
  const copy = buffer.getMappedRange(0, bytes).slice(0);
  buffer.unmap();
  return copy;
}

/** The error of a device that is gone. */
export function lostError(message) {
  return new DeviceLostError(`The GPU was lost${message ? ` (${message})` : ""}.`, "Load the network again: nothing that it has seen is kept. If this repeats, close other programs that use the GPU, or choose a smaller network.");
}

export const mebibytes = bytes => `${bytes < 2 ** 20 ? (bytes / 2 ** 20).toFixed(2) : Math.round(bytes / 2 ** 20)} MiB`;
