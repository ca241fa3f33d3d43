// All nodes in one draw call: each is a quad on which a ray meets a sphere, a cube or an octahedron, by the node's role.
import { BufferAttribute, InstancedBufferAttribute, InstancedBufferGeometry, Mesh, ShaderMaterial } from "../vendor/three.min.js";
import { LOOK, NODE_GLSL } from "./node_tables.js";

/** Shapes by role, as the legend names them, in the order of ROLES of scene_tables.py. */
export const SHAPES = ["cube", "ball", "octahedron", "cube"];
const CODES = { ball: 0, cube: 1, octahedron: 2 };

const VERTEX = `
${NODE_GLSL}
attribute float shape;
varying vec3 ray, eye;
varying vec2 corner;
flat varying vec4 look;
flat varying float size, kind, line, reach;
void main() {
  vec4 place = nodeAt(gl_InstanceID, look);
  vec4 middle = viewMatrix * vec4(place.xyz, 1.);
  float one = pixelAt(max(1e-6, -middle.z));
  size = max(radius * place.w, 1.6 * one);
  kind = shape;
  int bits = int(look.a * 255. + .5);
  // a ring around what is chosen lies outside of the shape
  float ring = (bits & ${LOOK.chosen | LOOK.hovered | LOOK.loop}) != 0 ? size * .42 + 4. * one : 0.;
  line = one;
  reach = size * 1.3 + ring;
  corner = position.xy * reach;
  vec3 spot = middle.xyz + vec3(corner, 0.);
  ray = flat_view > .5 ? vec3(0., 0., -1.) : spot;
  eye = (flat_view > .5 ? vec3(spot.xy, 0.) : vec3(0.)) - middle.xyz;
  gl_Position = place.w > 0. ? projectionMatrix * vec4(spot, 1.) : vec4(2., 2., 2., 1.);
}`;

const FRAGMENT = `
uniform vec3 back, front, accent;
varying vec3 ray, eye;
varying vec2 corner;
flat varying vec4 look;
flat varying float size, kind, line, reach;
bool ball(vec3 o, vec3 d, out vec3 n) {
  float b = dot(o, d), c = dot(o, o) - size * size, h = b * b - c;
  if (h < 0.) return false;
  n = (o - d * (b + sqrt(h))) / size;
  return true;
}
// between pairs of planes, each with a normal in a column
bool planes(vec3 o, vec3 d, out vec3 n) {
  float enter = -1e30, leave = 1e30;
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
    if (abs(speed) < 1e-7) { if (abs(from) > half_width) return false; continue; }
    float first = (-from - half_width * sign(speed)) / speed, last = (-from + half_width * sign(speed)) / speed;
    if (first > enter) { enter = first; n = -normal * sign(speed); }
    leave = min(leave, last);
  }
  return enter < leave;
}
void main() {
  int bits = int(look.a * 255. + .5);
  vec3 n, d = normalize(ray);
  bool hit = kind < .5 ? ball(eye, d, n) : planes(eye, d, n);
  if (!hit) {
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
  float light = .74 + .3 * max(0., dot(n, normalize(vec3(-.35, .75, .6))));
  vec3 colour = look.rgb * light;
  if (kind < .5) colour = mix(colour * .72, colour, smoothstep(.0, .42, facing));
  if ((bits & ${LOOK.dim}) != 0) colour = mix(back, colour, .32);
  gl_FragColor = vec4(colour, 1.);
}`;

/** Return the mesh of the nodes, with `uniforms` of its colours. */
export function makeNodeMesh(nodes, roles) {
  const geometry = new InstancedBufferGeometry();
  geometry.setAttribute("position", new BufferAttribute(new Float32Array([-1, -1, 0, 1, -1, 0, 1, 1, 0, -1, 1, 0]), 3));
  geometry.setIndex([0, 1, 2, 0, 2, 3]);
  geometry.setAttribute("shape", new InstancedBufferAttribute(Float32Array.from(roles, role => CODES[SHAPES[role] ?? "ball"]), 1));
  geometry.instanceCount = nodes.count;
  const material = new ShaderMaterial({ vertexShader: VERTEX, fragmentShader: FRAGMENT, uniforms: nodes.paint });
  const mesh = new Mesh(geometry, material);
  mesh.frustumCulled = false;
  return mesh;
}
