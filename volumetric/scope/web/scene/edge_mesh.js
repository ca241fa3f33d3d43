// All edges in one draw call: ribbons, wide where they start and thin where they end, with as many dashes as ticks of delay.
import { BufferAttribute, BufferGeometry, DoubleSide, Mesh, ShaderMaterial } from "../vendor/three.min.js";
import { NODE_GLSL } from "./node_tables.js";

const SMOOTH = 4000,
  DASHES = 12;

const VERTEX = `
${NODE_GLSL}
attribute vec2 ends;
attribute vec4 tint;
attribute vec2 trait;
uniform float chosen, wide, strength;
uniform vec3 incoming, outgoing;
varying vec4 colour;
varying float along;
flat varying float dashes;
vec3 bowed(vec3 a, vec3 b, float t) {
  vec3 way = b - a;
  vec3 aside = abs(way.y) > .9 * length(way) ? vec3(1., 0., 0.) : normalize(cross(cross(way, vec3(0., 1., 0.)), way));
  return mix(a, b, t) + aside * (trait.y * length(way) * 4. * t * (1. - t));
}
void main() {
  vec4 a = nodeAt(int(ends.x)), b = nodeAt(int(ends.y));
  int k = gl_VertexID % PER;
  float far = distance(a.xyz, b.xyz), t = float(k / 2) / float(STEPS), edge = (k & 1) == 0 ? 1. : -1.;
  bool hidden = a.w <= 0. || b.w <= 0. || far <= 0. || tint.a <= 0.;
  // a ribbon starts and ends at the surface of its nodes
  float start = min(.45, SHORT * radius * a.w / far), stop = 1. - min(.45, SHORT * radius * b.w / far), at = mix(start, stop, t);
#ifdef BOWED
  vec3 spot = bowed(a.xyz, b.xyz, at), next = bowed(a.xyz, b.xyz, at + .01) - bowed(a.xyz, b.xyz, at - .01);
#else
  vec3 spot = mix(a.xyz, b.xyz, at), next = b.xyz - a.xyz;
#endif
  vec4 seen = viewMatrix * vec4(spot, 1.);
  vec3 side = cross(mat3(viewMatrix) * next, flat_view > .5 ? vec3(0., 0., -1.) : seen.xyz);
  float length_of = length(side), one = pixelAt(max(1e-6, -seen.z));
  side = length_of > 0. ? side / length_of : vec3(0.);
  bool sends = ends.x == chosen, gets = ends.y == chosen, any_of = sends || gets;
  float width = wide * (any_of ? 1.7 : 1.) * mix(1., TIP, t);
  float shift = 0.;
#ifndef BOWED
  shift = trait.y * 8.; // of two edges between the same nodes each keeps to its right
#endif
  seen.xyz += side * one * (edge * width + shift);
  colour = tint;
  colour.a *= strength;
  if (chosen >= 0.) colour = any_of ? vec4(gets ? incoming : outgoing, 1.) : vec4(colour.rgb, colour.a * .3);
  along = t;
  dashes = trait.x;
  gl_Position = hidden ? vec4(2., 2., 2., 1.) : projectionMatrix * seen;
  if (chosen >= 0. && any_of) gl_Position.z = -.998 * gl_Position.w;
}`;

const FRAGMENT = `
varying vec4 colour;
varying float along;
flat varying float dashes;
void main() {
  if (dashes > 1.5 && fract(along * dashes) > .7) discard;
  gl_FragColor = colour;
}`;

/** Return the mesh of the edges: geometry by `set(edges, routes)`, colours by `paint(rgba)`. `uniforms` are those of the nodes and its own. */
export function makeEdgeMesh(uniforms, fine) {
  const material = new ShaderMaterial({
    vertexShader: VERTEX,
    fragmentShader: FRAGMENT,
    uniforms,
    transparent: true,
    depthWrite: false,
    side: DoubleSide,
  });
  const mesh = new Mesh(new BufferGeometry(), material);
  mesh.frustumCulled = false;
  mesh.renderOrder = 2;
  let per = 3;
  /** Take edges and their bows; returns whether they are drawn bowed. */
  function set({ source, target, delay }, bends) {
    const count = source.data.length,
      bowed = fine && count <= SMOOTH,
      steps = bowed ? 16 : 1;
    per = bowed ? 2 * steps + 2 : 3;
    const geometry = new BufferGeometry(),
      ends = new Float32Array(2 * per * count),
      traits = new Float32Array(2 * per * count);
    const index = new Uint32Array(bowed ? 6 * steps * count : 3 * count);
    for (let i = 0; i < count; i++) {
      for (let k = 0; k < per; k++) {
        const p = 2 * (per * i + k);
        ends[p] = source.data[i];
        ends[p + 1] = target.data[i];
        traits[p] = Math.min(DASHES, delay.data[i]);
        traits[p + 1] = bends[i];
      }
      const first = per * i;
      if (bowed)
        for (let k = 0; k < steps; k++)
          index.set(
            [0, 1, 2, 1, 3, 2].map(n => first + 2 * k + n),
            6 * (steps * i + k),
          );
      else index.set([first, first + 1, first + 2], first); // one triangle, which ends in a point
    }
    geometry.setIndex(new BufferAttribute(index, 1));
    geometry.setAttribute("ends", new BufferAttribute(ends, 2));
    geometry.setAttribute("trait", new BufferAttribute(traits, 2));
    geometry.setAttribute("tint", new BufferAttribute(new Uint8Array(4 * per * count), 4, true));
    mesh.geometry.dispose();
    mesh.geometry = geometry;
    mesh.visible = count > 0;
    material.defines = { PER: per, STEPS: steps, TIP: bowed ? ".28" : "0.", SHORT: bowed ? ".6" : "1.", ...(bowed ? { BOWED: "" } : {}) };
    material.needsUpdate = true;
    return bowed;
  }
  return {
    mesh,
    set,
    /** Take the bytes r, g, b, a of each edge. */
    paint(rgba) {
      const tint = mesh.geometry.getAttribute("tint");
      const from = new Uint32Array(rgba.buffer),
        to = new Uint32Array(tint.array.buffer);
      for (let i = 0, at = 0; i < from.length; i++) for (let k = 0; k < per; k++) to[at++] = from[i];
      tint.needsUpdate = true;
    },
    destroy() {
      mesh.geometry.dispose();
      material.dispose();
    },
  };
}
