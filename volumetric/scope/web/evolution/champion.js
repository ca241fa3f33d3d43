// The best genome of a generation as a graph in layers, with what is new since the structure before.
import { select } from "../vendor/d3.min.js";
import { colourTable } from "../charts/colours.js";
import { h, short } from "../elements.js";
import { layeredLayout } from "./layered_layout.js";

const SPAN = 320; // milliseconds in which nodes take new places
const isOff = node => node[2].endsWith("(off)");
const edgeKey = edge => `${edge[0]}>${edge[1]}`;

/** Return {element, svg, show(place), destroy()}; `place` is that of `store.champions`, -1 for none. */
export function mountChampion(store, app) {
  const svg = select(document.createElementNS("http://www.w3.org/2000/svg", "svg"))
    .attr("tabindex", 0)
    .attr("role", "application")
    .attr("aria-label", "Best genome");
  const edgeLayer = svg.append("g").attr("fill", "none"),
    nodeLayer = svg.append("g");
  const caption = h("p", { class: "champion-about" });
  const stage = h("div", { class: "champion-stage" }, svg.node());
  const element = h("div", { class: "champion" }, caption, stage, legend());
  let shown = -2,
    layout = null,
    spots = new Map(),
    frame = 0,
    focus = -1,
    current = null;

  function show(place) {
    if (place === shown) return;
    shown = place;
    focus = -1;
    current = store.champions[place] ?? null;
    if (!current) {
      caption.textContent = "no structure recorded yet";
      edgeLayer.selectAll("*").remove();
      nodeLayer.selectAll("*").remove();
      return;
    }
    const before = store.champions[place - 1];
    const oldNodes = new Set(before?.nodes.map(node => node[0])),
      oldEdges = new Set(before?.edges.filter(edge => edge[3]).map(edgeKey));
    current.isNewNode = node => Boolean(before) && !oldNodes.has(node[0]);
    current.isNewEdge = edge => Boolean(before) && Boolean(edge[3]) && !oldEdges.has(edgeKey(edge));
    const fresh = [current.nodes.filter(current.isNewNode).length, current.edges.filter(current.isNewEdge).length];
    const [nodeName, edgeName] = store.sizeNames,
      layers = nodeName === "layers";
    const hidden = current.nodes.filter(node => (layers ? node[1] !== "input" && !isOff(node) : node[1] === "hidden")).length,
      enabled = current.edges.filter(edge => edge[3]).length;
    caption.replaceChildren(
      h("strong", {}, `genome ${current.genome}`),
      ` best since generation ${current.generation}, fitness ${short(Number(current.fitness))}; `,
      current.nodes.length
        ? layers
          ? `${hidden} layers`
          : `${hidden} ${nodeName}, ${enabled} ${edgeName}`
        : `${current.nodeCount} nodes and ${current.edgeCount} connections, too many to draw`,
      fresh[0] + fresh[1]
        ? h(
            "span",
            { class: "fresh" },
            ` ${[fresh[0] && `+${fresh[0]} ${layers ? "layers" : "nodes"}`, fresh[1] && `+${fresh[1]} connections`].filter(Boolean).join(", ")}`,
          )
        : "",
    );
    svg.attr("aria-label", `Best genome: ${caption.textContent}`);
    layout = layeredLayout(current.nodes, current.edges);
    move();
  }
  const size = () => ({ width: Math.max(140, stage.clientWidth), height: Math.max(120, stage.clientHeight) });
  const radius = () => Math.max(2.5, Math.min(11, (0.36 * (size().height - 30)) / Math.max(1, layout.tallest)));
  function targets() {
    const { width, height } = size(),
      side = store.sizeNames[0] === "layers" ? Math.min(90, width * 0.2) : Math.min(54, width * 0.14);
    return new Map([...layout.at].map(([id, p]) => [id, { x: side + p.x * (width - 2 * side), y: 14 + p.y * (height - 28) }]));
  }
  /** Bring nodes to their places; those that stay move there, so that one sees what grows. */
  function move() {
    cancelAnimationFrame(frame);
    const goal = targets(),
      start = new Map([...goal].map(([id, p]) => [id, spots.get(id) ?? p])),
      began = performance.now();
    const still = app.reducedMotion() || current.edges.length > 400 || !spots.size;
    const step = now => {
      const t = still ? 1 : Math.min(1, (now - began) / SPAN),
        ease = t * (2 - t);
      spots = new Map(
        [...goal].map(([id, p]) => {
          const from = start.get(id);
          return [id, { x: from.x + (p.x - from.x) * ease, y: from.y + (p.y - from.y) * ease }];
        }),
      );
      draw();
      if (t < 1) frame = requestAnimationFrame(step);
    };
    step(began);
  }
  function draw() {
    const table = colourTable("PuOr"),
      most = Math.max(1e-9, ...current.edges.map(edge => Math.abs(edge[2] ?? 0))),
      r = radius();
    const weightColour = value => {
      if (value === null) return "var(--dim)";
      const code = 3 * Math.round(128 + (value < 0 ? -1 : 1) * (52 + 60 * Math.min(1, Math.abs(value) / most))); // away from the pale middle
      return `rgb(${table[code]},${table[code + 1]},${table[code + 2]})`;
    };
    edgeLayer
      .selectAll("path")
      .data(current.edges, edgeKey)
      .join("path")
      .attr("class", edge => (current.isNewEdge(edge) ? "fresh-edge" : null))
      .attr("stroke", edge => weightColour(edge[2]))
      .attr("stroke-width", edge => (edge[3] ? 0.9 + 3.2 * Math.min(1, Math.abs(edge[2] ?? most / 3) / most) : 1))
      .attr("stroke-opacity", edge => (edge[3] ? 0.92 : 0.3))
      .attr("stroke-dasharray", edge => (edge[3] ? null : "3 4"))
      .attr("d", edge => path(spots.get(edge[0]), spots.get(edge[1]), r))
      .classed("focused", (_, i) => focus - current.nodes.length === i);
    const groups = nodeLayer
      .selectAll("g")
      .data(current.nodes, node => node[0])
      .join(enter => {
        const group = enter.append("g");
        group.append("circle");
        group.append("text");
        return group;
      });
    groups
      .attr("transform", node => `translate(${spots.get(node[0]).x},${spots.get(node[0]).y})`)
      .attr("class", node => `node ${node[1]}${current.isNewNode(node) ? " fresh-node" : ""}${isOff(node) ? " off" : ""}`)
      .classed("focused", (_, i) => focus === i);
    groups.select("circle").attr("r", r);
    const side = node => (node[1] === "input" ? -1 : node[1] === "output" ? 1 : 0);
    const named = r > 4 && current.nodes.length <= 60;
    groups
      .select("text")
      .attr("x", node => side(node) * (r + 5))
      .attr("y", node => (side(node) ? 4 : -r - 4))
      .attr("text-anchor", node => ["end", "middle", "start"][side(node) + 1])
      .text(node => (named ? nameOf(node) : ""));
  }
  const nameOf = node =>
    store.sizeNames[0] === "layers"
      ? node[2].split(" at ")[0].slice(0, 18)
      : node[1] === "input"
        ? node[2].replace(/^input (\d+)$/, "in $1").slice(0, 18)
        : node[1] === "output"
          ? "out"
          : String(node[0]);
  function path(a, b, r) {
    if (a === b)
      return `M${a.x - r * 0.6},${a.y - r * 0.7}C${a.x - 3 * r},${a.y - 4.5 * r} ${a.x + 3 * r},${a.y - 4.5 * r} ${a.x + r * 0.6},${a.y - r * 0.7}`;
    const middle = (a.x + b.x) / 2;
    if (b.x <= a.x) {
      // backwards, in a recurrent genome
      const lift = 26 + Math.abs(a.x - b.x) * 0.18;
      return `M${a.x},${a.y}C${a.x + 30},${a.y + lift} ${b.x - 30},${b.y + lift} ${b.x},${b.y}`;
    }
    return `M${a.x},${a.y}C${middle},${a.y} ${middle},${b.y} ${b.x},${b.y}`;
  }
  const describeNode = node =>
    [`${node[1]} ${node[0]}: ${node[2]}`, node[3] === null ? null : `bias ${node[3]}`, current.isNewNode(node) ? "new" : null]
      .filter(Boolean)
      .join("\n");
  const describeEdge = edge =>
    [`${edge[0]} → ${edge[1]}`, edge[2] === null ? null : `weight ${edge[2]}`, edge[3] ? null : "disabled", current.isNewEdge(edge) ? "new" : null]
      .filter(Boolean)
      .join("\n");
  svg
    .on("pointermove", event => {
      const datum = event.target.tagName === "path" ? select(event.target).datum() : select(event.target.closest("g.node") ?? event.target).datum();
      if (!Array.isArray(datum)) {
        app.tooltip.hide();
        return;
      }
      app.tooltip.show(event.clientX, event.clientY, event.target.tagName === "path" ? describeEdge(datum) : describeNode(datum));
    })
    .on("pointerleave", () => app.tooltip.hide())
    .on("keydown", event => {
      const turn = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key],
        count = current ? current.nodes.length + current.edges.length : 0;
      if (!turn || !count) return;
      event.preventDefault();
      event.stopPropagation();
      focus = (focus + turn + count) % count;
      draw();
      app.announce(
        (focus < current.nodes.length ? describeNode(current.nodes[focus]) : describeEdge(current.edges[focus - current.nodes.length])).replaceAll(
          "\n",
          ", ",
        ),
      );
    });
  const watcher = new ResizeObserver(() => {
    const { width, height } = size();
    svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height);
    if (current && layout) {
      spots = targets();
      draw();
    }
  });
  watcher.observe(stage);
  return {
    element,
    svg: svg.node(),
    show,
    destroy() {
      cancelAnimationFrame(frame);
      watcher.disconnect();
      element.remove();
    },
  };
}

function legend() {
  const entry = (name, text) => h("span", {}, h("span", { class: `mark ${name}` }), text);
  return h(
    "p",
    { class: "champion-legend dim" },
    entry("positive", "positive weight"),
    entry("negative", "negative"),
    entry("off", "disabled"),
    entry("fresh", "new"),
  );
}
