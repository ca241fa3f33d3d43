// Reads all arrays of nested data.
import { isArray } from "../document.js";

/** Return a copy of JSON data in which every array is {data, shape, dtype}. */
export async function readTables(data, app) {
  if (isArray(data)) return app.doc.array(data);
  if (Array.isArray(data)) return Promise.all(data.map(one => readTables(one, app)));
  if (data === null || typeof data !== "object") return data;
  const entries = await Promise.all(Object.entries(data).map(async ([key, value]) => [key, await readTables(value, app)]));
  return Object.fromEntries(entries);
}
