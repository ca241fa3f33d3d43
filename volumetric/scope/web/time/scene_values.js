// What the scene and the raster show of a frame: activity of one recording, or the difference of two.
import { largestDifference, matched } from "./compare.js";

/**
 * Return {show(k, mode, beside), cell(k, node, mode), range()}.
 *
 * first() and second() return frames, the second one null if nothing is compared; mode is "first", "second" or "difference".
 * With one group of nodes the numbers are root mean squares, else parts of the range of each node's group.
 */
export function makeSceneValues({ tables, renderer, first, second }) {
  const nodes = tables.names.length, single = tables.groups.length === 1;
  const values = new Float32Array(nodes), other = new Float32Array(nodes), change = new Float32Array(nodes);
  const odd = new Uint8Array(nodes), fired = new Uint8Array(nodes);
  let most = 0;
  /** Return the size of the largest difference, in the unit that is shown. */
  const range = () => (most ||= second() ? largestDifference(first(), second(), single ? null : first().largest) : 1);
  let pairs = null; // frame of the first → that of the second, + 1; 0: not looked up
  function pair(k) {
    pairs ??= new Int32Array(first().count);
    if (!pairs[k]) pairs[k] = (matched(first(), second(), k) ?? -2) + 1;
    return pairs[k] > 0 ? pairs[k] - 1 : null;
  }
  const difference = (a, b, g) => (b - a) / (single ? 1 : first().largest[g] || 1);

  const edged = new WeakSet(); // renderers that show values of edges
  function giveEdges(to, values) {
    if (!values && !edged.has(to)) return; // to say so for every frame costs as much as to draw them
    if (values) edged.add(to); else edged.delete(to);
    to.setEdgeValues?.(values);
  }
  function give(to, of, k) {
    of.fill(k, values, !single);
    if (k > of.first) {
      of.fill(k - 1, change, !single);
      for (let i = 0; i < nodes; i++) change[i] = values[i] - change[i];
    } else change.fill(0);
    const shown = single ? [of.low[0], of.largest[0] || 1] : [0, 1];
    to.setValues?.({
      values, range: shown, change, changeRange: [shown[0] - shown[1], shown[1] - shown[0]], odd: of.fillOdd(k, odd), fired: of.fillFired(k, fired),
      label: "activity", unit: single ? "rms" : "", scale: single ? "" : "within the range of the node's group",
    });
    giveEdges(to, of.edge(k));
  }
  function giveDifference(k, at) {
    first().fill(k, other);
    second().fill(at, values);
    for (let i = 0; i < nodes; i++) {
      values[i] = difference(other[i], values[i], first().groupOf[i]);
      odd[i] = Number.isNaN(values[i]) ? 1 : 0;
    }
    renderer.setValues?.({
      values, range: [-range(), range()], odd, label: `${second().name} − ${first().name}`, unit: single ? "rms" : "",
      scale: single ? "" : "of the group's largest value",
    });
    giveEdges(renderer, null);
  }
  return {
    range,
    /** Show frame k in the scene, and that of the second recording in the renderer `beside`, if there is one. */
    show(k, mode, beside) {
      const at = second() ? matched(first(), second(), k) : null;
      if (beside && at !== null) give(beside, second(), at);
      if (mode === "difference" && at !== null) giveDifference(k, at);
      else if (mode === "second" && at !== null) give(renderer, second(), at);
      else give(renderer, first(), k);
    },
    /** Return what a pixel of the raster shows, 0 … 1, NaN if it is not finite, or null without a frame. */
    cell(k, node, mode) {
      const of = first(), g = of.groupOf[node];
      if (mode === "first" || !second()) return of.part(of.value(k, node), g);
      const at = pair(k);
      if (at === null) return null;
      if (mode === "second") return of.part(second().value(at, node), g);
      return Math.max(0, Math.min(1, difference(of.value(k, node), second().value(at, node), g) / range() / 2 + .5));
    },
  };
}

/** Let two recordings have the same range in each group, so that equal colours are equal numbers. */
export function shareRanges(one, other) {
  for (let g = 0; g < one.groups; g++) {
    one.largest[g] = other.largest[g] = Math.max(one.largest[g], other.largest[g]);
    one.low[g] = other.low[g] = Math.min(one.low[g], other.low[g]);
  }
}
