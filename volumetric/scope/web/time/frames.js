// Frames of activity in typed arrays: those of a recording, and those that a running stream sends, up to a limit.
import { isArray, messageArray } from "../document.js";

const BYTES = 96 << 20, MOST = 20000; // of frames that a running stream sends

const bit = (bits, at, i) => bits[at + (i >> 3)] >> (7 - (i & 7)) & 1;

/** Return node-major differences as frames: [nodes, frames] of changes modulo 256 → [frames, nodes]. */
function undo(differences, nodes, frames) {
  const values = new Uint8Array(nodes * frames);
  for (let i = 0, at = 0; i < nodes; i++) {
    for (let f = 0, sum = 0, to = i; f < frames; f++, at++, to += nodes) values[to] = sum = sum + differences[at] & 255;
  }
  return values;
}

/** Give a recording's `node` the shape [frames, nodes], whatever its coding. */
export function decodeRecording(recording, nodes) {
  if (recording.coding !== "differences") return recording;
  const frames = recording.ticks.data.length;
  recording.node = { data: undo(recording.node.data, nodes, frames), shape: [frames, nodes], dtype: "uint8" };
  delete recording.coding;
  return recording;
}

const bitsOf = (array, nodes) => {
  const wide = nodes + 7 >> 3;
  if (array.data.length === wide && !(nodes === 1 && array.data[0] === 1)) return array.data;
  const bits = new Uint8Array(wide);
  for (let i = 0; i < nodes; i++) if (array.data[i]) bits[i >> 3] |= 128 >> (i & 7);
  return bits;
};

/**
 * Return the frames of a recording, or an empty row of frames for a running stream.
 *
 * tables: the scene, as arrays; recording: of recording_tables, or null. Frames have numbers k from `first` to `last`, which
 * frames that are dropped do not change. Values are root mean squares, NaN where a node's output was not finite.
 */
export function makeFrames(tables, recording, limit = 0) {
  const nodes = tables.names.length, groupOf = tables.group.data, groups = tables.groups.length, wide = nodes + 7 >> 3;
  if (recording) decodeRecording(recording, nodes);
  let count = recording ? recording.ticks.data.length : 0, first = 0, room = count, reads = 0;
  const most = limit || Math.max(100, Math.min(MOST, Math.floor(BYTES / (nodes * 1.25 + groups * 4 + 24))));
  let ticks = recording ? Float64Array.from(recording.ticks.data) : new Float64Array(0);
  let node = recording?.node.data ?? new Uint8Array(0), scale = recording?.scale.data ?? new Float32Array(0);
  let odd = recording?.odd.data ?? new Uint8Array(0), fired = recording?.fired.data ?? new Uint8Array(0);
  let resets = recording?.reset.data ?? new Uint8Array(0);
  const edgeCount = recording?.edge.shape[1] ?? 0, edgeData = recording?.edge.data ?? null, liveEdges = new Map();
  const meters = {};
  for (const [name, values] of Object.entries(recording?.meters ?? {})) meters[name] = values.data;
  meters.mean ??= new Float32Array(0);
  meters.odd ??= new Float32Array(0);
  const largest = new Float64Array(groups);
  const slot = k => k % Math.max(1, room);
  const factors = new Float64Array(groups), low = new Float64Array(groups);

  for (let f = 0; f < count; f++) for (let g = 0; g < groups; g++) largest[g] = Math.max(largest[g], scale[f * groups + g]);
  if (recording && meters.mean.length !== count) {
    meters.mean = Float32Array.from({ length: count }, (_, f) => meanOf(f));
  }

  if (count) usualLow();

  /** Let a group's values begin at their 10 % quantile if nine tenths are above half of the largest, else at 0. */
  function usualLow() {
    const some = Array.from({ length: groups }, () => []), stride = Math.max(1, Math.floor(count / 32)), thin = Math.max(1, Math.floor(nodes / 4096));
    for (let f = 0; f < count; f += stride) {
      for (let i = f % thin; i < nodes; i += thin) {
        if (!bit(odd, f * wide, i)) some[groupOf[i]].push(node[f * nodes + i] / 255 * scale[f * groups + groupOf[i]]);
      }
    }
    for (const [g, values] of some.entries()) {
      const quantile = Float64Array.from(values).sort()[Math.floor(values.length / 10)] ?? 0;
      low[g] = quantile > largest[g] / 2 && quantile < .999 * largest[g] ? quantile : 0;
    }
  }
  function meanOf(at) {
    let sum = 0;
    for (let i = 0; i < nodes; i++) sum += bit(odd, at * wide, i) ? 0 : node[at * nodes + i] * scale[at * groups + groupOf[i]];
    return sum / 255 / Math.max(1, nodes);
  }
  function value(k, i) {
    const at = slot(k);
    reads++;
    return bit(odd, at * wide, i) ? NaN : node[at * nodes + i] / 255 * scale[at * groups + groupOf[i]];
  }
  /** Write the values of frame k to `out`; with `relative` 0 … 1 within the range of each node's group. */
  function fill(k, out, relative = false) {
    const at = slot(k), from = at * nodes;
    reads += nodes;
    for (let g = 0; g < groups; g++) factors[g] = scale[at * groups + g] / 255;
    for (let i = 0; i < nodes; i++) out[i] = node[from + i] * factors[groupOf[i]];
    if (relative) for (let i = 0; i < nodes; i++) out[i] = part(out[i], groupOf[i]);
    for (let byte = 0; byte < wide; byte++) {
      if (!odd[at * wide + byte]) continue;
      for (let i = 8 * byte; i < Math.min(nodes, 8 * byte + 8); i++) if (bit(odd, at * wide, i)) out[i] = NaN;
    }
    return out;
  }
  /** Return where a value is in the range of its group, 0 … 1; NaN stays. */
  function part(x, g) {
    const share = (x - low[g]) / (largest[g] - low[g] || 1);
    return share < 0 ? 0 : share > 1 ? 1 : share;
  }
  function flags(bits, k, out) {
    const at = slot(k) * wide;
    reads += nodes;
    for (let i = 0; i < nodes; i++) out[i] = bit(bits, at, i);
    return out;
  }
  function grow() {
    const next = Math.min(most, Math.max(64, 2 * room));
    const larger = (array, width) => { const to = new array.constructor(next * width); to.set(array.subarray(0, room * width)); return to; };
    if (room > next) return;
    ticks = larger(ticks, 1); node = larger(node, nodes); scale = larger(scale, groups); odd = larger(odd, wide); fired = larger(fired, wide);
    resets = larger(resets, 1);
    for (const name of Object.keys(meters)) meters[name] = larger(meters[name].length >= room ? meters[name] : new Float32Array(room), 1);
    room = next;
  }
  /** Add the frame of a message; returns false if it does not fit this scene, or is not later than the last one. */
  function append(message) {
    const read = array => (isArray(array) ? messageArray(array) : { data: array });
    const now = { node: read(message.node).data, scale: read(message.scale).data };
    if (now.node.length !== nodes || now.scale.length !== groups) return false;
    if (count && !(message.t > ticks[slot(first + count - 1)])) return false;
    if (count === room && room < most) grow();
    if (count === room) { liveEdges.delete(first); first++; count--; }
    const k = first + count, at = slot(k);
    count++;
    ticks[at] = message.t;
    node.set(now.node, at * nodes);
    scale.set(now.scale, at * groups);
    odd.set(bitsOf(read(message.odd), nodes), at * wide);
    fired.set(bitsOf(read(message.fired), nodes), at * wide);
    resets[at] = message.reset ? 1 : 0;
    const edge = message.edge ? read(message.edge).data : null;
    if (edge?.length) liveEdges.set(k, Uint8Array.from(edge));
    for (let g = 0; g < groups; g++) largest[g] = Math.max(largest[g], now.scale[g]);
    let sum = 0;
    for (let byte = 0; byte < wide; byte++) for (let bits = odd[at * wide + byte]; bits; bits >>= 1) sum += bits & 1;
    for (const name of Object.keys(meters)) meters[name][at] = name === "mean" ? meanOf(at) : name === "odd" ? sum : NaN;
    if (k >= 31 && (k + 1 & k) === 0) usualLow(); // again with each doubling
    return true;
  }
  /** Return the number of the last frame at a tick or before it; the first frame if all are later. */
  function at(tick) {
    let low = first, high = first + count - 1;
    while (low < high) {
      const middle = low + high + 1 >> 1;
      if (ticks[slot(middle)] <= tick) low = middle; else high = middle - 1;
    }
    return low;
  }
  return {
    nodes, groups, groupOf, largest, low, value, part, fill, append, at,
    name: recording?.name ?? "live", total: recording?.total ?? count, step: recording?.step ?? 1, missed: recording?.missed ?? 0,
    get first() { return first; },
    get count() { return count; },
    get last() { return first + count - 1; },
    /** How many values were read so far: what a step costs. */
    get reads() { return reads; },
    has: k => k >= first && k < first + count,
    clamp: k => Math.max(first, Math.min(first + count - 1, Number.isNaN(k) ? 0 : Math.round(k))),
    tick: k => ticks[slot(k)],
    reset: k => resets[slot(k)] === 1,
    isFired: (k, i) => bit(fired, slot(k) * wide, i) === 1,
    isOdd: (k, i) => bit(odd, slot(k) * wide, i) === 1,
    fillFired: (k, out) => flags(fired, k, out),
    fillOdd: (k, out) => flags(odd, k, out),
    /** Return attention or gates of the first edges at a frame, 0 … 255, or null. */
    edge: k => liveEdges.get(k) ?? (edgeCount && k < (edgeData.length / edgeCount) ? edgeData.subarray(k * edgeCount, (k + 1) * edgeCount) : null),
    meterNames: () => Object.keys(meters),
    meter: (name, k) => meters[name][slot(k)],
  };
}
