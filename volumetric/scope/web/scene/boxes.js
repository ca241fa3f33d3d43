// Boxes of regions, such as those on the canvas of a program: all in one draw call, as frames that one can look through.
import { BoxGeometry, DoubleSide, InstancedBufferAttribute, InstancedBufferGeometry, Mesh, ShaderMaterial, Vector3 } from "../vendor/three.min.js";
import { NODE_GLSL } from "./node_tables.js";

const VERTEX = `
${NODE_GLSL}
attribute vec4 box;
varying vec3 inside;
flat varying vec4 look;
flat varying vec3 sides;
void main() {
  vec4 place = nodeAt(int(box.w));
  look = texelFetch(looks, cellOf(int(box.w)), 0);
  inside = position;
  sides = box.xyz;
  gl_Position = place.w > 0. ? projectionMatrix * viewMatrix * vec4(place.xyz + position * box.xyz, 1.) : vec4(2., 2., 2., 1.);
}`;

const FRAGMENT = `
varying vec3 inside;
flat varying vec4 look;
flat varying vec3 sides;
void main() {
  vec3 gap = (.5 - abs(inside)) * sides, soft = fwidth(gap) + 1e-6;
  // on a face one gap is 0; an edge of the box is where a second one is, too
  vec3 line = 1. - smoothstep(soft * .8, soft * 2., gap);
  float edge = max(max(min(line.x, line.y), min(line.y, line.z)), min(line.x, line.z));
  gl_FragColor = vec4(look.rgb, mix(.07, .8, edge));
}`;

/** Return {mesh, boxes, at(ray)} of nodes with an extent, or null without any. */
export function makeBoxes(nodes, extent) {
  if (!extent) return null;
  const chosen = [];
  for (let i = 0; i < nodes.count; i++) if (extent[3 * i] > 0) chosen.push(i);
  if (!chosen.length) return null;
  const shape = new BoxGeometry(1, 1, 1),
    geometry = new InstancedBufferGeometry();
  geometry.setAttribute("position", shape.getAttribute("position"));
  geometry.setIndex(shape.getIndex());
  geometry.setAttribute("box", new InstancedBufferAttribute(Float32Array.from(chosen.flatMap(i => [...extent.subarray(3 * i, 3 * i + 3), i])), 4));
  geometry.instanceCount = chosen.length;
  const mesh = new Mesh(
    geometry,
    new ShaderMaterial({
      vertexShader: VERTEX,
      fragmentShader: FRAGMENT,
      uniforms: nodes.paint,
      transparent: true,
      depthWrite: false,
      side: DoubleSide,
    }),
  );
  mesh.frustumCulled = false;
  mesh.renderOrder = 1;
  const corner = (i, sign) => nodes.position(i, new Vector3()).add(new Vector3().fromArray(extent, 3 * i).multiplyScalar(sign / 2));
  return {
    mesh,
    corners: () => chosen.filter(nodes.shown).map(i => ({ node: i, low: corner(i, -1), high: corner(i, 1) })),
    /** Return the node of the smallest box that a ray meets, or null: a box may lie inside of another. */
    at(ray) {
      let best = null,
        least = Infinity;
      const spot = new Vector3();
      for (const { node, low, high } of this.corners()) {
        const volume = (high.x - low.x) * (high.y - low.y) * (high.z - low.z);
        if (volume < least && ray.intersectBox({ min: low, max: high }, spot)) {
          best = node;
          least = volume;
        }
      }
      return best;
    },
    destroy() {
      geometry.dispose();
      shape.dispose();
      mesh.material.dispose();
    },
  };
}
