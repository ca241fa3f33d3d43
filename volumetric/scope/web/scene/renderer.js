// Draws nodes and edges in space by three.js, in at most four draw calls: edges, nodes, boxes of regions, the grid below.
import { Color, Raycaster, Scene, Vector2 } from "../vendor/three.min.js";
import { makeBoxes } from "./boxes.js";
import { makeCameras } from "./cameras.js";
import { makeEdgeColours } from "./edge_colours.js";
import { makeEdgeMesh } from "./edge_mesh.js";
import { edgeBows, edgeLists, neighbours } from "./edge_routes.js";
import { makeFloor } from "./floor.js";
import { makeChoice } from "./choice.js";
import { chooseLabels, makeLabels } from "./labels.js";
import { layerWays } from "./layer_numbers.js";
import { describeNode, nodeCoordinate } from "./node_text.js";
import { makeNodeMesh } from "./node_mesh.js";
import { LOOK, makeNodes } from "./node_tables.js";
import { makePalette } from "./palette.js";
import { watchPointer } from "./pointer.js";
import { drawsOnProcessor, sceneCanvas } from "./scene_canvas.js";
import { sceneFigure } from "./scene_figure.js";
import { sceneSpace } from "./scene_space.js";
import { layered, sceneSvg } from "./scene_svg.js";
import { sceneTheme } from "./scene_theme.js";
import { makeScreenPlaces } from "./screen_places.js";

const SMOOTH_NODES = 8000; // scenes with more are drawn without smoothed outlines
const FEW_NODES = 600; // the same, where the browser draws on the processor

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
 * - cameraState, setCameraState(state), onCamera(f): to keep two scenes in step. highlightEdges(false): all edges alike, though a node is chosen.
 * - canvas, count, info() → {calls, triangles, milliseconds}, draw() (at the next frame), now() (at once), picture() → a canvas with
 *   labels, svg() → an SVG element (up to 5,000 nodes, else an error), destroy().
 * - choice {colour, size, map, scale, edges}, setChoice(part of it), onLegend(f): for scene/scene_menu.js.
 */
export function makeRenderer(host, tables, app) {
  const nodes = makeNodes(tables),
    { count } = nodes;
  const fine = count <= FEW_NODES || (count <= SMOOTH_NODES && !drawsOnProcessor());
  const { canvas, renderer } = sceneCanvas(count, fine);
  const scene = new Scene();
  host.append(canvas);
  let edges = tables.edges,
    lists = edgeLists(edges, count),
    theme = sceneTheme(host),
    repaint = true,
    repaintEdges = true;
  const palette = makePalette(tables, lists, count),
    edgeColours = makeEdgeColours(edges);
  const colours = { back: { value: new Color() }, front: { value: new Color() }, accent: { value: new Color() } };
  nodes.paint = { ...nodes.uniforms, ...colours };
  const edgeUniforms = {
    ...nodes.uniforms,
    chosen: { value: -1 },
    wide: { value: 1 },
    strength: { value: 1 },
    incoming: { value: new Color() },
    outgoing: { value: new Color() },
  };
  const mesh = makeNodeMesh(nodes, tables.role.data, fine),
    ribbons = makeEdgeMesh(edgeUniforms, fine),
    floor = makeFloor(nodes);
  const boxes = makeBoxes(nodes, tables.extent?.data ?? null),
    ways = layerWays(nodes, tables, lists);
  nodes.boxes = boxes?.corners() ?? [];
  for (const box of nodes.boxes) {
    nodes.box.low.min(box.low);
    nodes.box.high.max(box.high);
  }
  scene.add(mesh, ribbons.mesh, floor.lines, ...(boxes ? [boxes.mesh] : []));
  const size = () => ({ width: host.clientWidth || 1, height: host.clientHeight || 1 });
  const listeners = { select: new Set(), hover: new Set(), camera: new Set(), legend: new Set() };
  const tell = (name, ...what) => {
    for (const listener of [...listeners[name]]) listener(...what);
  };
  const on = name => listener => {
    listeners[name].add(listener);
    return () => listeners[name].delete(listener);
  };
  const cameras = makeCameras(canvas, nodes, {
    changed: () => {
      screen?.forget();
      draw();
      tell("camera");
    },
    settled: () => app.state.set("camera", cameras.state.join(",")),
    reduced: () => app.reducedMotion(),
  });
  const screen = makeScreenPlaces(nodes, cameras, size),
    labels = makeLabels(host);
  const roles = tables.roles.map((name, i) => [i, name]).filter(([i]) => tables.role.data.includes(i));
  const shown = { labels: true, floor: tables.kind !== "genome", edges: true };
  let covered = 0,
    bows = null,
    loops = 0,
    waiting = 0,
    spent = 0,
    highlight = true;

  const choice = makeChoice(nodes, draw);
  function setEdges(next) {
    edges = next;
    lists = edgeLists(edges, count);
    loops = 0;
    for (let i = 0; i < count; i++) nodes.looks[4 * i + 3] &= ~LOOK.loop;
    for (let i = 0; i < edges.source.data.length; i++) {
      if (edges.source.data[i] === edges.target.data[i]) {
        nodes.looks[4 * edges.source.data[i] + 3] |= LOOK.loop;
        loops++;
      }
    }
    bows = edgeBows(edges, nodes);
    if (!ribbons.set(edges, bows)) bows.fill(0); // drawn straight
    const total = edges.source.data.length - loops;
    edgeUniforms.wide.value = total > 20000 ? 0.7 : total > 4000 ? 1.1 : total > 800 ? 1.3 : 1.9;
    edgeUniforms.strength.value = Math.max(0.16, Math.min(0.8, 16 / Math.sqrt(total || 1)));
    repaintEdges = repaint = true;
    draw();
  }
  function paintTheme() {
    theme = sceneTheme(host);
    const put = (to, rgb) => to.value.setRGB(rgb[0] / 255, rgb[1] / 255, rgb[2] / 255);
    for (const name of ["back", "front", "accent"]) put(colours[name], theme[name]);
    for (const name of ["incoming", "outgoing"]) put(edgeUniforms[name], theme[name]);
    floor.lines.material.color.setRGB(...theme.grid.map((x, i) => (x * 0.82 + theme.dim[i] * 0.18) / 255), "srgb");
    renderer.setClearColor(new Color().setRGB(...theme.back.map(x => x / 255), "srgb"), 1);
    repaint = repaintEdges = true;
    draw();
  }
  function prepare() {
    if (repaint) {
      if (palette.paint(nodes, theme)) {
        nodes.changed("places");
        screen.forget();
      }
      repaint = false;
      nodes.changed("looks");
      tell("legend");
    }
    if (repaintEdges) {
      ribbons.paint(edgeColours.paint(palette.choice.edges, theme));
      repaintEdges = false;
      tell("legend");
    }
    ribbons.mesh.visible = shown.edges && edges.source.data.length > 0;
    floor.lines.visible = shown.floor;
    nodes.uniforms.pixel.value = cameras.pixel;
    nodes.uniforms.flat_view.value = cameras.flat ? 1 : 0;
    edgeUniforms.chosen.value = highlight ? (choice.chosen ?? -1) : -1;
    cameras.active.updateMatrixWorld();
  }
  function chosenLabels() {
    const { width, height } = size();
    const { chosen } = choice,
      near = node => screen.of(node)?.radius >= 6;
    const first = [choice.hovered, chosen].filter(node => node !== null);
    if (chosen !== null) first.push(...neighbours(lists, edges, chosen).slice(0, 24).filter(near));
    if (!first.length && count > 60)
      first.push(
        ...Object.values(tables.ports)
          .slice(0, 12)
          .map(port => port.node)
          .filter(unhidden),
      );
    return chooseLabels({
      nodes,
      places: screen.places,
      names: tables.names,
      first: [...new Set(first)],
      everyone: shown.labels,
      ticks: shown.floor ? floor.ticks : [],
      point: screen.point,
      at: screen.at,
      measure: labels.measure,
      width,
      height,
    });
  }
  function unhidden(node) {
    const at = screen.of(node);
    return at !== null && screen.at(at.x, at.y) === node;
  }
  function now() {
    cancelAnimationFrame(waiting);
    waiting = 0;
    const began = performance.now();
    prepare();
    renderer.render(scene, cameras.active);
    const { width, height } = size();
    labels.write(shown.labels ? chosenLabels() : [], width, height, Math.min(devicePixelRatio, 2));
    spent = performance.now() - began;
  }
  /** Draw, and return all that drawings of what is seen need. */
  function seen() {
    now();
    const legend = palette.legend(theme),
      none = { data: [] };
    if (shown.edges) legend.entries.push(...edgeColours.legend(palette.choice.edges, theme));
    return {
      nodes,
      bows,
      legend,
      theme,
      chosen: choice.chosen,
      ...size(),
      places: screen.places(),
      point: screen.point,
      names: tables.names,
      roles: tables.role.data,
      title: legend.title,
      edges: shown.edges ? edges : { source: none, target: none, delay: none },
      rgba: edgeColours.paint(palette.choice.edges, theme),
      strength: edgeUniforms.strength.value,
      grid: shown.floor ? floor.lines.geometry.getAttribute("position").array : [],
      labels: shown.labels ? chosenLabels() : [],
      boxes: boxes?.corners() ?? [],
    };
  }
  function draw() {
    waiting ||= requestAnimationFrame(now);
  }
  const pointer = watchPointer(canvas, {
    pick,
    focus: node => (node === null ? cameras.fit() : cameras.focus(node)),
    select: node => tell("select", node),
    hover(node, event) {
      choice.hover(node);
      canvas.style.cursor = node === null ? "" : "pointer";
      tell("hover", node, event);
    },
  });
  canvas.addEventListener("webglcontextrestored", () => {
    nodes.changed("places", "looks", "layers");
    repaint = repaintEdges = true;
    draw();
  });
  const ray = new Raycaster(),
    spot = new Vector2();
  function pick(x, y) {
    const node = screen.at(x, y);
    if (node !== null || !boxes) return node;
    const { width, height } = size();
    ray.setFromCamera(spot.set((x / width) * 2 - 1, 1 - (y / height) * 2), cameras.active);
    return boxes.at(ray.ray);
  }
  function resize() {
    const { width, height } = size();
    renderer.setPixelRatio(Math.min(devicePixelRatio, count > SMOOTH_NODES ? 1 : 2));
    renderer.setSize(width, height);
    const wide = width > 860;
    cameras.resize(width, height, { left: wide ? 250 : 0, right: wide ? covered : 0, top: wide ? 20 : 46, bottom: wide ? 0 : 40 });
    screen.forget();
  }
  const watcher = new ResizeObserver(() => {
    resize();
    if (!cameras.touched) cameras.fit(true);
    now();
  });
  const themed = app.dark.subscribe(() => requestAnimationFrame(paintTheme));
  const change = () => {
    repaint = true;
    draw();
  };

  resize();
  setEdges(edges);
  floor.update();
  paintTheme();
  const saved = app.state.get("camera")?.split(",").map(Number);
  cameras.fit(true);
  if (saved) cameras.setState(saved);
  watcher.observe(host);
  return {
    canvas,
    count,
    draw,
    now,
    pick,
    shown,
    ways,
    palette,
    nodes,
    cameras,
    get edges() {
      return edges;
    },
    get selected() {
      return choice.chosen;
    },
    get choice() {
      return { ...palette.choice };
    },
    get cameraState() {
      return cameras.state;
    },
    setCameraState: state => cameras.setState(state),
    onSelect: on("select"),
    onHover: on("hover"),
    onCamera: on("camera"),
    onLegend: on("legend"),
    setValues(values) {
      palette.setValues(values);
      change();
    },
    setChannel(name, channel) {
      palette.set(name, channel);
      change();
    },
    setMask(mask) {
      palette.setMask(mask);
      change();
    },
    setColours(rgb) {
      palette.setColours(rgb);
      change();
    },
    setSizes(sizes) {
      palette.setSizes(sizes);
      change();
    },
    setLegend(legend) {
      palette.setLegend(legend);
      change();
    },
    setChoice(part) {
      Object.assign(palette.choice, part);
      repaintEdges = true;
      change();
    },
    setEdgeValues(values) {
      edgeColours.setValues(values);
      repaintEdges = true;
      draw();
    },
    setEdgeMask(mask) {
      edgeColours.setMask(mask);
      repaintEdges = true;
      draw();
    },
    setEdges(next) {
      edgeColours.set(next);
      setEdges(next);
    },
    setVisible(mask) {
      for (let i = 0; i < count; i++) nodes.visible[i] = mask && !mask[i] ? 0 : 1;
      change();
    },
    ...sceneSpace({ nodes, screen, floor, draw }),
    show(part) {
      Object.assign(shown, part);
      draw();
    },
    highlightEdges(on) {
      highlight = on;
      draw();
    },
    select(node) {
      choice.select(node);
      tell("legend");
    },
    /** Ring a node as if the pointer were on it. */
    point: node => choice.hover(node),
    fit: () => cameras.fit(),
    focus: node => cameras.focus(node),
    view: name => cameras.view(name),
    project: node => screen.of(node),
    coordinate: node => nodeCoordinate(tables, node),
    describe: node => describeNode(tables, palette, node),
    neighbours: node => ({ incoming: lists.incoming(node), outgoing: lists.outgoing(node) }),
    legend: () => ({
      nodes: palette.legend(theme),
      edges: [
        ...edgeColours.legend(palette.choice.edges, theme),
        ...(choice.chosen !== null && highlight
          ? [
              [`rgb(${theme.incoming})`, "into the chosen node"],
              [`rgb(${theme.outgoing})`, "out of the chosen node"],
            ]
          : []),
      ],
      loops: loops > 0,
    }),
    edgeModes: () => edgeColours.modes(),
    edgeMode: () => edgeColours.mode(palette.choice.edges),
    /** Say how much of the right side a panel covers, in pixels. */
    cover(right) {
      covered = right;
      resize();
      if (!cameras.touched) cameras.fit(true);
      draw();
    },
    rolesShown: () => roles,
    info: () => ({
      calls: renderer.info.render.calls,
      frame: renderer.info.render.frame,
      triangles: renderer.info.render.triangles,
      milliseconds: spent,
      nodes: count,
      edges: edges.source.data.length,
    }),
    /** Wait until the device has drawn, and return the milliseconds of a frame; for measurements. */
    timedFrame() {
      const gl = renderer.getContext(),
        began = performance.now();
      repaint = true;
      now();
      gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
      return performance.now() - began;
    },
    picture() {
      now();
      return layered(canvas, labels.canvas);
    },
    svg: () => sceneSvg(seen()),
    figure: () => sceneFigure(seen()),
    destroy() {
      cancelAnimationFrame(waiting);
      pointer.destroy();
      watcher.disconnect();
      themed();
      for (const part of [cameras, labels, ribbons, floor, nodes, boxes]) part?.destroy();
      mesh.geometry.dispose();
      mesh.material.dispose();
      renderer.dispose();
      renderer.forceContextLoss();
      canvas.remove();
    },
  };
}
