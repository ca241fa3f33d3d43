// Pieces that earlier visits fetched, by checksum, in the Cache API. Without it (pages that are files, private windows)
// nothing is kept.

const NAME = "volumetric-pieces";
const address = sha256 => `https://pieces.invalid/${sha256}`;

async function open() {
  try {
    return await globalThis.caches?.open(NAME) ?? null;
  } catch {
    return null;
  }
}

/** Return the bytes of a piece, or null. */
export async function cachedPiece(sha256) {
  try {
    const answer = await (await open())?.match(address(sha256));
    return answer ? new Uint8Array(await answer.arrayBuffer()) : null;
  } catch {
    return null;
  }
}

/** Keep a piece, if there is room. */
export async function keepPiece(sha256, bytes) {
  try {
    await (await open())?.put(address(sha256), new Response(bytes));
  } catch {
    // no room: the next visit fetches it again
  }
}

/** Forget a piece that is damaged. */
export async function dropPiece(sha256) {
  try {
    await (await open())?.delete(address(sha256));
  } catch {
    // it was not there
  }
}
