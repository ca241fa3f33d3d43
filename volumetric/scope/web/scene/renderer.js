// Draws nodes and edges in space by three.js: all nodes in one call, all edges in another.
import {
  AmbientLight, BoxGeometry, BufferGeometry, Color, DirectionalLight, Float32BufferAttribute, InstancedMesh, LineBasicMaterial, LineSegments,
  Matrix4, MeshLambertMaterial, OrbitControls, PerspectiveCamera, Raycaster, Scene, Vector2, Vector3, WebGLRenderer,
} from "../vendor/three.min.js";
import { classRgb } from "../charts/colours.js";

/**
 * Return what draws a scene. `tables` is the data of scene_tables.py with its arrays read; `host` the element to fill.
 *
 * The parts of the page (time, sculptor, inspector) give numbers; which of them are colours or sizes, the user chooses in
 * the scene's own menu. All arrays are copied or read at once, so a caller may use one buffer again and again.
 *
 * Numbers that change with time:
 * - setValues({values, range, change, odd, fired, label, unit, scale} or null): `values` Float32Array of `count`; `range`
 *   [low, high], default [0, 1]; `change` Float32Array of `count`, the change since the frame before, and `changeRange`;
 *   `odd` Uint8Array, 1: not finite, in a colour of its own (a NaN in `values` is odd, too); `fired` Uint8Array, 0: did not
 *   compute, drawn dim; `label` and `unit` for the legend; `scale` a text that the legend shows, such as "of the group's
 *   largest value". Low below 0: a map around 0. Call it for every frame; it costs about 1 ms for 50,000 nodes.
 * - setEdgeValues(Uint8Array or null): one number 0 … 255 for each of the first edges, as their strength of colour.
 * - setChannel(name, {values, range, label, unit} or null): one more choice "colour by" and "size by", such as a gradient.
 *   A choice of classes has {classes: Uint8Array or Uint16Array of count, names, label} instead.
 * What is shown:
 * - setMask(Uint8Array or null): 0: a node is masked out and drawn as a ghost. setEdgeMask(Uint8Array or null): 0: an edge is cut.
 * - setVisible(Uint8Array or null): 0: a node and its edges are not drawn at all.
 * - setEdges({source, target, kind, delay, kinds}): other edges, in the form of tables.edges.
 * - setColours(Uint8Array of count × 3 or null): colours past the menu, such as those of a comparison; null: the menu again.
 *   setSizes(Float32Array or null, 1 is the usual size): sizes past the menu.
 *   setLegend({title, map, range, unit, note} or {title, classes: [[name, colour]]} or null): the legend of such colours.
 * Choice and camera:
 * - select(node or null), selected, onSelect(f(node or null)), onHover(f(node or null, event)); both return a function that ends it.
 * - pick(x, y) → node or null at a place of the canvas in CSS pixels; coordinate(node) → "z.y.x.slot" or null; describe(node) → text
 *   of the tooltip; neighbours(node) → {incoming, outgoing}, the indices of edges.
 * - fit(), focus(node), view("front" | "top" | "side" | "corner"), project(node) → {x, y, depth, radius} in CSS pixels or null.
 * - canvas, count, info() → {calls, triangles, milliseconds}, draw() (at the next frame), now() (at once), svg(), destroy().
 */
export function makeRenderer(host, tables, app) {
  const renderer = new WebGLRenderer({ antialias: true, preserveDrawingBuffer: true });
  const scene = new Scene(), camera = new PerspectiveCamera(45, 1, .01, 1e5);
  host.append(renderer.domElement);
  const count = tables.names.length, at = tables.at.data;
  const mesh = new InstancedMesh(new BoxGeometry(.6, .6, .6), new MeshLambertMaterial(), Math.max(1, count));
  mesh.count = count;
  const matrix = new Matrix4(), colour = new Color();
  let sizes = null, visible = null;
  function place() {
    for (let i = 0; i < count; i++) {
      const size = (visible && !visible[i] ? 0 : 1) * (sizes ? sizes[i] : 1);
      matrix.makeScale(size, size, size).setPosition(at[3 * i], -at[3 * i + 1], at[3 * i + 2]);
      mesh.setMatrixAt(i, matrix);
    }
    mesh.instanceMatrix.needsUpdate = true;
    mesh.boundingSphere = null;
    draw();
  }
  function setColours(rgb) {
    for (let i = 0; i < count; i++) {
      const [r, g, b] = rgb ? rgb.subarray(3 * i, 3 * i + 3) : classRgb(tables.group.data[i]);
      mesh.setColorAt(i, colour.setRGB(r / 255, g / 255, b / 255, "srgb"));
    }
    mesh.instanceColor.needsUpdate = true;
    draw();
  }
  const ends = [], { source, target } = tables.edges;
  for (let i = 0; i < source.data.length; i++) {
    for (const end of [source.data[i], target.data[i]]) ends.push(at[3 * end], -at[3 * end + 1], at[3 * end + 2]);
  }
  const edges = new LineSegments(
    new BufferGeometry().setAttribute("position", new Float32BufferAttribute(ends, 3)),
    new LineBasicMaterial({ color: 0x7788aa, transparent: true, opacity: .35 }));
  const sun = new DirectionalLight(0xffffff, 1.6);
  sun.position.set(1, 2, 3);
  scene.add(mesh, edges, sun, new AmbientLight(0xffffff, 1.4));
  const controls = new OrbitControls(camera, renderer.domElement);
  controls.enableDamping = false;
  controls.addEventListener("change", () => draw());

  let waiting = 0;
  function draw() {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      scene.background = colour.set(getComputedStyle(host).getPropertyValue("--stage").trim() || "#eef1f6").clone();
      renderer.render(scene, camera);
    });
  }
  function fit() {
    mesh.computeBoundingSphere();
    const { center, radius } = mesh.boundingSphere;
    controls.target.copy(center);
    camera.position.copy(center).add(new Vector3(.5, .55, 1).normalize().multiplyScalar(Math.max(2, radius * 2.7)));
    controls.update();
    draw();
  }
  const ray = new Raycaster(), spot = new Vector2(), selects = [], hovers = [];
  function nodeAt(event) {
    const box = renderer.domElement.getBoundingClientRect();
    spot.set((event.clientX - box.left) / box.width * 2 - 1, 1 - (event.clientY - box.top) / box.height * 2);
    ray.setFromCamera(spot, camera);
    return ray.intersectObject(mesh)[0]?.instanceId ?? null;
  }
  renderer.domElement.addEventListener("click", event => { const node = nodeAt(event); for (const listener of selects) listener(node); });
  renderer.domElement.addEventListener("pointermove", event => { const node = nodeAt(event); for (const listener of hovers) listener(node, event); });
  const watcher = new ResizeObserver(() => {
    renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
    renderer.setSize(host.clientWidth, host.clientHeight);
    camera.aspect = host.clientWidth / Math.max(1, host.clientHeight);
    camera.updateProjectionMatrix();
    draw();
  });
  watcher.observe(host);
  const themed = app.dark.subscribe(() => draw());
  place();
  setColours(null);
  fit();
  return {
    canvas: renderer.domElement, count, setColours, fit, draw,
    setSizes(values) { sizes = values; place(); },
    setVisible(mask) { visible = mask; place(); },
    select() { draw(); },
    focus(node) { controls.target.set(at[3 * node], -at[3 * node + 1], at[3 * node + 2]); controls.update(); draw(); },
    onSelect: listener => selects.push(listener),
    onHover: listener => hovers.push(listener),
    destroy() { watcher.disconnect(); themed(); controls.dispose(); renderer.dispose(); renderer.domElement.remove(); },
  };
}
