// The checks of a network's pieces.

import { DamagedFileError } from "./errors.js";

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
