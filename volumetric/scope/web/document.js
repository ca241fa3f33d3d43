// The data of the page: JSON, and arrays of numbers in blobs that are unpacked when a view asks for them.

const TYPES = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, int32: Int32Array,
  float16: Uint16Array, float32: Float32Array, float64: Float64Array,
};

const bytesOf = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));

async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function fromHalf(bits) {
  const values = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) {
    const sign = bits[i] & 0x8000 ? -1 : 1, exponent = bits[i] >> 10 & 31, fraction = bits[i] & 1023;
    values[i] = exponent === 0 ? sign * fraction * 2 ** -24
      : exponent === 31 ? (fraction ? NaN : sign * Infinity) : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return values;
}

function typed(buffer, reference) {
  const Type = TYPES[reference.dtype];
  if (!Type) throw new Error(`an array has an unknown dtype: ${reference.dtype}`);
  const count = reference.shape.reduce((a, b) => a * b, 1);
  if (buffer.byteLength !== count * Type.BYTES_PER_ELEMENT) throw new Error("an array of this page is not whole");
  const values = new Type(buffer);
  return { data: reference.dtype === "float16" ? fromHalf(values) : values, shape: reference.shape, dtype: reference.dtype };
}

/** Whether a value of the document stands for an array. */
export const isArray = value => value !== null && typeof value === "object" && ("$array" in value || "$base64" in value);

/** Return {data, shape, dtype} of an array in a message of the server. */
export const messageArray = reference => typed(bytesOf(reference.$base64).buffer, reference);

/** Read the document of the page: {title, source, views, array(reference)}. */
export function readDocument() {
  const content = JSON.parse(document.getElementById("document").textContent);
  if (content.version !== 1) throw new Error(`the page has data of version ${content.version}; this script reads version 1`);
  const unpacked = new Map();
  /** Return a promise of {data, shape, dtype}; data is a typed array (float16 becomes Float32Array). */
  const array = reference => {
    if ("$base64" in reference) return Promise.resolve(messageArray(reference));
    const place = reference.$array;
    if (!unpacked.has(place)) {
      const element = document.querySelector(`script[data-blob="${Number(place)}"]`);
      unpacked.set(place, unpack(bytesOf(element.textContent)).then(buffer => typed(buffer, reference)));
    }
    return unpacked.get(place);
  };
  return { ...content, array };
}
