// A grid below a scene, or behind a flat one, with numbers of coordinates; one draw call.
import { BufferGeometry, Float32BufferAttribute, LineBasicMaterial, LineSegments, Vector3 } from "../vendor/three.min.js";

const AXES = ["x", "y", "z"],
  LINES = 12;

/** Return a step of 1, 2 or 5 times a power of ten, so that at most `LINES` of it span a width. */
function niceStep(width) {
  if (!(width > 0)) return 1;
  const rough = width / LINES,
    power = 10 ** Math.floor(Math.log10(rough));
  return Math.max(
    ...[1, 2, 5, 10]
      .filter(k => k * power >= rough)
      .slice(0, 1)
      .map(k => k * power),
  );
}

/** Return {lines, ticks, update(), destroy()}; ticks are [{at: Vector3, text, strong}], to be written by labels.js. */
export function makeFloor(nodes) {
  const material = new LineBasicMaterial({ transparent: true, opacity: 1 });
  const lines = new LineSegments(new BufferGeometry(), material),
    ticks = [];
  lines.frustumCulled = false;
  function update() {
    const { low, high } = nodes.box,
      spread = nodes.uniforms.spread.value,
      pad = nodes.spacing * 0.5,
      points = [];
    ticks.length = 0;
    // spread along an axis moves the coordinate v to v + (v - middle) · amount
    const moved = (axis, v) =>
      v +
      (nodes.spreadBy === AXES[axis]
        ? (v - (nodes.core.low.getComponent(axis) + nodes.core.high.getComponent(axis)) / 2) * spread.getComponent(axis)
        : 0);
    const span = [0, 1, 2].map(k => high.getComponent(k) - low.getComponent(k)),
      flat = nodes.core.high.z - nodes.core.low.z <= 1e-6;
    const upright = flat && span[1] > 1e-6 && !(spread.z > 0);
    const [u, v, w] = upright ? [0, 1, 2] : [0, 2, 1];
    const other = nodes.spreadBy === "group" || nodes.spreadBy === "steps" ? spread.z : 0;
    const reach = k => {
      const more = k === 2 && other ? Math.max(...[0].concat([nodes.layerReach * other])) : 0;
      return [moved(k, low.getComponent(k)) - pad - more, moved(k, high.getComponent(k)) + pad + more];
    };
    const base = moved(w, low.getComponent(w)) - nodes.spacing * 0.75,
      ends = { [u]: reach(u), [v]: reach(v) };
    const put = (a, b, c) => {
      const spot = [];
      spot[u] = a;
      spot[v] = b;
      spot[w] = c;
      return spot;
    };
    for (const [own, across] of [
      [u, v],
      [v, u],
    ]) {
      const step = Math.max(
        niceStep(nodes.spacing * LINES * 0.5),
        span[own] > 0 && span[own] < LINES && Number.isInteger(low.getComponent(own)) ? 1 : 0,
        niceStep(span[own]),
      );
      const first = Math.ceil(low.getComponent(own) / step - 1e-6) * step;
      for (let i = 0; i <= 2 * LINES; i++) {
        const value = first + i * step;
        if (value > high.getComponent(own) + step * 1e-6) break;
        const at = moved(own, value),
          [from, to] = ends[across];
        points.push(...(own === u ? [...put(at, from, base), ...put(at, to, base)] : [...put(from, at, base), ...put(to, at, base)]));
        if (!(own === 2 && other)) {
          const edge = across === 1 ? from : to,
            gap = (to - from) * 0.015 + nodes.spacing * 0.25;
          const far = across === 1 ? edge - gap : edge + gap,
            label = own === 1 ? -value : value;
          ticks.push({
            at: new Vector3(...(own === u ? put(at, far, base) : put(far, at, base))),
            text: String(Number(label.toPrecision(6))),
            axis: AXES[own],
          });
        }
      }
      const [a, b] = ends[own],
        [from, to] = ends[across];
      for (const side of [from, to])
        points.push(...(own === u ? [...put(a, side, base), ...put(b, side, base)] : [...put(side, a, base), ...put(side, b, base)]));
      const middle = (a + b) / 2,
        out = (to - from) * 0.05 + nodes.spacing * 0.7,
        far = across === 1 ? from - out : to + out;
      if (span[own] > 0)
        ticks.push({
          at: new Vector3(...(own === u ? put(middle, far, base) : put(far, middle, base))),
          text: AXES[own],
          axis: AXES[own],
          strong: true,
        });
    }
    lines.geometry.dispose();
    lines.geometry = new BufferGeometry().setAttribute("position", new Float32BufferAttribute(points, 3));
  }
  return {
    lines,
    ticks,
    update,
    destroy() {
      lines.geometry.dispose();
      material.dispose();
    },
  };
}
