// Writes the format of safetensors (github.com/huggingface/safetensors): the length of a JSON header in 8 bytes, the header,
// then the data of all tensors, side by side.

const TYPES = { float32: "F32", int32: "I32" };

/** Return the bytes of a file with tensors {name: {dtype, shape, data}}. */
export function safetensors(tensors, metadata = {}) {
  const header = { __metadata__: metadata };
  let end = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    header[name] = { dtype: TYPES[dtype], shape, data_offsets: [end, end += data.byteLength] };
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const start = 8 + Math.ceil(json.length / 8) * 8; // spaces after the header align the data
  const file = new Uint8Array(start + end).fill(32, 8 + json.length, start);
  new DataView(file.buffer).setBigUint64(0, BigInt(start - 8), true);
  file.set(json, 8);
  let at = start;
  for (const { data } of Object.values(tensors)) {
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return file;
}
