// Where nodes are on the screen, and which one is at a place of it. All are projected once for each place of the eye.
import { Matrix4, Vector3 } from "../vendor/three.min.js";

const REACH = 7; // a click this many pixels beside a small node still means it

/** Return {places(), at(x, y), of(node), point(vector), forget()}. places() is x, y, depth, radius of each node in pixels; depth NaN: not seen. */
export function makeScreenPlaces(nodes, cameras, size) {
  const places = new Float32Array(4 * nodes.count),
    matrix = new Matrix4(),
    spot = new Vector3();
  let known = false;
  function all() {
    if (known) return places;
    known = true;
    const camera = cameras.active,
      { width, height } = size(),
      pixel = cameras.pixel,
      least = 1.6;
    camera.updateMatrixWorld();
    matrix.multiplyMatrices(camera.projectionMatrix, camera.matrixWorldInverse);
    const e = matrix.elements,
      v = camera.matrixWorldInverse.elements;
    for (let i = 0; i < nodes.count; i++) {
      const p = 4 * i;
      places[p + 2] = NaN;
      if (!nodes.shown(i)) continue;
      const { x, y, z } = nodes.position(i, spot);
      const depth = -(v[2] * x + v[6] * y + v[10] * z + v[14]),
        w = e[3] * x + e[7] * y + e[11] * z + e[15];
      if (w <= 0) continue;
      places[p] = (((e[0] * x + e[4] * y + e[8] * z + e[12]) / w + 1) / 2) * width;
      places[p + 1] = ((1 - (e[1] * x + e[5] * y + e[9] * z + e[13]) / w) / 2) * height;
      places[p + 2] = depth;
      places[p + 3] = Math.max(least, nodes.radius(i) / (pixel * (cameras.flat ? 1 : depth)));
    }
    return places;
  }
  return {
    places: all,
    /** Return the node at a place: the nearest to the eye of those that are there, else the nearest within a few pixels, else null. */
    at(x, y) {
      const of = all();
      let best = null,
        depth = Infinity,
        near = null,
        gap = REACH;
      for (let i = 0; i < nodes.count; i++) {
        const p = 4 * i;
        if (!(of[p + 2] === of[p + 2])) continue;
        const dx = of[p] - x,
          dy = of[p + 1] - y,
          reach = of[p + 3];
        if (dx > reach + REACH || dx < -reach - REACH || dy > reach + REACH || dy < -reach - REACH) continue;
        const far = Math.hypot(dx, dy) - reach;
        if (far <= 0) {
          if (of[p + 2] < depth) {
            depth = of[p + 2];
            best = i;
          }
        } else if (far < gap) {
          gap = far;
          near = i;
        }
      }
      return best ?? near;
    },
    of(node) {
      const p = 4 * node,
        of = all();
      return of[p + 2] === of[p + 2] ? { x: of[p], y: of[p + 1], depth: of[p + 2], radius: of[p + 3] } : null;
    },
    /** Return {x, y, depth} of a point of the scene, or null behind the eye. */
    point(vector) {
      all();
      const { width, height } = size();
      spot.copy(vector).applyMatrix4(cameras.active.matrixWorldInverse);
      const depth = -spot.z;
      if (!cameras.flat && depth <= 0) return null;
      spot.applyMatrix4(cameras.active.projectionMatrix);
      return { x: ((spot.x + 1) / 2) * width, y: ((1 - spot.y) / 2) * height, depth };
    },
    forget() {
      known = false;
    },
  };
}
