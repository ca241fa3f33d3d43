// All nodes in one draw call: each is a quad on which a ray meets a sphere, a cube or an octahedron, by the node's role.
// Vertices have numbers instead of instances, for each of which a software renderer needs 20 µs.
import { BufferAttribute, BufferGeometry, Mesh, ShaderMaterial } from "../vendor/three.min.js";
import { LOOK, NODE_GLSL } from "./node_tables.js";

/** Shapes by role, as the legend names them, in the order of ROLES of scene_tables.py. */
export const SHAPES = ["cube", "ball", "octahedron", "cube"];
const CODES = { ball: 0, cube: 1, octahedron: 2 };

const VERTEX = `
${NODE_GLSL}
varying vec3 ray, eye;
varying vec2 corner;
flat varying vec4 look;
flat varying float size, kind, line, reach, on_top;
flat varying vec3 middle;
void main() {
  int node = gl_VertexID / 4, k = gl_VertexID % 4;
  vec4 place = nodeAt(node);
  look = texelFetch(looks, cellOf(node), 0);
  middle = (viewMatrix * vec4(place.xyz, 1.)).xyz;
  float one = pixelAt(max(1e-6, -middle.z));
  size = max(radius * place.w, 1.6 * one);
  kind = texelFetch(layers, cellOf(node), 0).g;
  int bits = int(look.a * 255. + .5);
  // a ring around what is chosen lies outside of the shape
  float ring = (bits & ${LOOK.chosen | LOOK.hovered | LOOK.loop}) != 0 ? size * .42 + 4. * one : 0.;
  line = one;
  reach = size * (kind < .5 ? 1.08 : kind < 1.5 ? 1.4 : 1.25) + ring;
  corner = vec2(k == 1 || k == 2 ? reach : -reach, k > 1 ? reach : -reach);
  vec3 spot = middle + vec3(corner, 0.);
  ray = flat_view > .5 ? vec3(0., 0., -1.) : spot;
  eye = (flat_view > .5 ? vec3(spot.xy, 0.) : vec3(0.)) - middle;
  on_top = (bits & ${LOOK.chosen}) != 0 ? 1. : 0.;
  gl_Position = place.w > 0. ? projectionMatrix * vec4(spot, 1.) : vec4(2., 2., 2., 1.);
  if (on_top > .5) gl_Position.z = -.999 * gl_Position.w; // what is chosen is never covered
}`;

const FRAGMENT = `
uniform vec3 back, front, accent;
uniform mat4 projectionMatrix;
flat varying vec3 middle;
varying vec3 ray, eye;
varying vec2 corner;
flat varying vec4 look;
flat varying float size, kind, line, reach, on_top;
// each returns how far a ray is inside of its shape, and the place and the normal where it enters
float ball(vec3 o, vec3 d, out vec3 n, out float enter) {
  float b = dot(o, d), c = dot(o, o) - size * size, h = b * b - c;
  enter = -b - sqrt(max(0., h));
  n = (o + d * enter) / size;
  return h;
}
float planes(vec3 o, vec3 d, out vec3 n, out float enter) {
  enter = -1e30;
  float leave = 1e30;
  for (int i = 0; i < 4; i++) {
    vec3 normal; float half_width;
    if (kind < 1.5) {
      if (i == 3) break;
      normal = i == 0 ? vec3(1., 0., 0.) : i == 1 ? vec3(0., 1., 0.) : vec3(0., 0., 1.);
      half_width = size * .78;
    } else {
      normal = vec3(1., (i & 1) == 0 ? 1. : -1., (i & 2) == 0 ? 1. : -1.) * .57735;
      half_width = size * .68;
    }
    normal = mat3(viewMatrix) * normal;
    float speed = dot(d, normal), from = dot(o, normal);
    if (abs(speed) < 1e-7) { if (abs(from) > half_width) leave = -1e30; continue; }
    float first = (-from - half_width * sign(speed)) / speed, last = (-from + half_width * sign(speed)) / speed;
    if (first > enter) { enter = first; n = -normal * sign(speed); }
    leave = min(leave, last);
  }
  return leave - enter;
}
void main() {
  int bits = int(look.a * 255. + .5);
  vec3 n, d = normalize(ray);
  float enter, inside = kind < .5 ? ball(eye, d, n, enter) : planes(eye, d, n, enter), cover = 1.;
#ifdef FINE
  cover = clamp(inside / max(1e-9, fwidth(inside)) + .5, 0., 1.);
  // the depth of the surface, so that ribbons end at it
  vec4 met = projectionMatrix * vec4(middle + eye + d * enter, 1.);
  gl_FragDepth = on_top > .5 ? .0005 : clamp(.5 + .5 * met.z / met.w, 0., 1.);
#endif
  if (inside <= 0.) {
    float at = length(corner), inner = size * (kind < .5 ? 1.16 : 1.32);
    if ((bits & ${LOOK.chosen | LOOK.hovered}) != 0) {
      float wide = max(2. * line, size * .12);
      if (at > inner + line && at < inner + line + wide) { gl_FragColor = vec4((bits & ${LOOK.chosen}) != 0 ? accent : front, 1.); return; }
    } else if ((bits & ${LOOK.loop}) != 0 && at > inner && at < inner + line * 1.2) { gl_FragColor = vec4(mix(back, front, .45), 1.); return; }
    discard;
  }
  float facing = clamp(dot(n, -d), 0., 1.);
  if ((bits & ${LOOK.ghost}) != 0) {
    // a ghost is only its outline, and every second pixel of the rest of it
    ivec2 dot_at = ivec2(gl_FragCoord.xy);
    bool rim = kind < .5 ? facing < .55 : false;
    if (!rim && ((dot_at.x + dot_at.y) & 3) != 0) discard;
    gl_FragColor = vec4(mix(back, front, rim ? .5 : .35), 1.);
    return;
  }
  float light = .82 + .22 * max(0., dot(n, normalize(vec3(-.35, .75, .6))));
  vec3 colour = look.rgb * light;
  if (kind < .5) colour = mix(dot(back, vec3(1.)) < 1.2 ? mix(colour, front, .3) : colour * .78, colour, smoothstep(.0, .42, facing));
  if ((bits & ${LOOK.dim}) != 0) colour = mix(back, colour, .32);
  gl_FragColor = vec4(colour, cover);
}`;

/** Return the mesh of the nodes; `fine`: with smooth outlines, and depths of surfaces rather than of middles. */
export function makeNodeMesh(nodes, roles, fine) {
  const geometry = new BufferGeometry(),
    index = new Uint32Array(6 * nodes.count);
  for (let i = 0; i < nodes.count; i++) {
    index.set([4 * i, 4 * i + 1, 4 * i + 2, 4 * i, 4 * i + 2, 4 * i + 3], 6 * i);
    nodes.layers[4 * i + 1] = CODES[SHAPES[roles[i]] ?? "ball"];
  }
  geometry.setIndex(new BufferAttribute(index, 1));
  nodes.changed("layers");
  const material = new ShaderMaterial({
    vertexShader: VERTEX,
    fragmentShader: FRAGMENT,
    uniforms: nodes.paint,
    defines: fine ? { FINE: "" } : {},
    alphaToCoverage: fine,
  });
  const mesh = new Mesh(geometry, material);
  mesh.frustumCulled = false;
  return mesh;
}
