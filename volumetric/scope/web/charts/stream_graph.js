// Sizes of classes over a number as a stream: layers upon each other, with the class under the pointer told.
import { area, axisBottom, curveMonotoneX, pointer, scaleLinear, select } from "../vendor/d3.min.js";
import { h } from "../elements.js";
import { classColour } from "./colours.js";

const LABELS = 16,
  LETTER = 7;

const MARGIN = { top: 8, right: 12, bottom: 30, left: 12 },
  COLUMN = 4; // pixels

/**
 * Return {element, svg, update(columns), setMarker(x), highlight(id), destroy()}.
 *
 * columns: [{x, sizes: Map of class → size}] with x ascending; more of them than there is room for are drawn as means, which
 * the label tells. options: {title, xLabel, height, tooltip, order(id) → place
 * from top to bottom, colour(id), describe(id, column place) → text, onPick(id), onMove(x), name(id), announce}
 */
export function streamGraph(columns, options = {}) {
  const svg = select(document.createElementNS("http://www.w3.org/2000/svg", "svg"))
    .attr("tabindex", 0)
    .attr("role", "application")
    .attr("aria-label", options.title ?? "stream");
  const layersGroup = svg.append("g"),
    axis = svg.append("g"),
    label = svg.append("text").attr("text-anchor", "end");
  const marker = svg
    .append("line")
    .attr("class", "marker")
    .attr("stroke", "currentColor")
    .attr("stroke-opacity", 0.75)
    .attr("stroke-width", 1.5)
    .attr("pointer-events", "none");
  const names = svg.append("g").attr("pointer-events", "none");
  const element = h("figure", { class: "chart stream" }, svg.node());
  const order = options.order ?? (id => id),
    colour = options.colour ?? classColour;
  let current = columns,
    at = null,
    marked = null,
    x = scaleLinear(),
    y = scaleLinear(),
    bins = [],
    layers = new Map(),
    shown = null;

  /** Put neighbouring columns together, `together` of them. */
  function gatherBins(together) {
    bins = [];
    for (let from = 0; from < current.length; from += together) {
      const members = current.slice(from, from + together),
        sizes = new Map();
      for (const member of members) for (const [id, size] of member.sizes) sizes.set(id, (sizes.get(id) ?? 0) + size / members.length);
      const ends = from === 0 ? members[0].x : from + together >= current.length ? members.at(-1).x : null; // up to both rims
      bins.push({
        from,
        to: from + members.length,
        x: ends ?? (members[0].x + members.at(-1).x) / 2,
        entries: [...sizes].sort((a, b) => order(a[0]) - order(b[0])),
      });
    }
  }
  function stackLayers() {
    layers = new Map();
    let most = 1;
    bins.forEach(({ entries }, k) => {
      const total = entries.reduce((sum, entry) => sum + entry[1], 0);
      most = Math.max(most, total);
      let low = -total / 2;
      for (const [id, size] of entries) {
        if (!layers.has(id)) layers.set(id, []);
        layers.get(id).push([k, low, low + size]);
        low += size;
      }
    });
    // where a layer begins, ends or pauses it has no height, between those that would be its neighbours
    for (const [id, spans] of layers) {
      const whole = [];
      for (const span of spans) {
        const last = whole.at(-1);
        if (last && span[0] > last[0] + 1) whole.push(nothing(last[0] + 1, id), nothing(span[0] - 1, id));
        else if (!last && span[0] > 0) whole.push(nothing(span[0] - 1, id));
        whole.push(span);
      }
      const last = whole.at(-1);
      if (last[0] < bins.length - 1) whole.push(nothing(last[0] + 1, id));
      layers.set(id, whole);
    }
    return most;
  }
  /** Return the span without height that a layer has where it is not there. */
  function nothing(k, id) {
    let low = -bins[k].entries.reduce((sum, entry) => sum + entry[1], 0) / 2;
    for (const [other, size] of bins[k].entries) {
      if (order(other) > order(id)) break;
      low += size;
    }
    return [k, low, low];
  }

  function draw() {
    const width = Math.max(160, element.clientWidth || 480),
      height = Math.max(120, options.height ?? element.clientHeight ?? 240);
    svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height);
    if (!current.length) {
      layersGroup.selectAll("path").remove();
      return;
    }
    const together = Math.max(1, Math.ceil((current.length * COLUMN) / width / 1.5));
    gatherBins(together);
    const most = stackLayers(),
      first = current[0].x,
      last = current.at(-1).x;
    x = scaleLinear(first === last ? [first - 0.5, last + 0.5] : [first, last], [MARGIN.left, width - MARGIN.right]);
    y = scaleLinear([-most / 2, most / 2], [MARGIN.top, height - MARGIN.bottom]);
    const shape = area()
      .x(span => x(bins[span[0]].x))
      .y0(span => y(span[1]))
      .y1(span => y(span[2]))
      .curve(curveMonotoneX);
    const single = span => {
      // one column has no width of its own
      const left = MARGIN.left,
        right = width - MARGIN.right;
      return `M${left},${y(span[1])}H${right}V${y(span[2])}H${left}Z`;
    };
    layersGroup
      .selectAll("path")
      .data([...layers], entry => entry[0])
      .join("path")
      .attr("data-class", entry => entry[0])
      .attr("fill", entry => colour(entry[0]))
      .attr("stroke", "var(--panel)")
      .attr("stroke-width", 0.7)
      .attr("d", entry => (bins.length < 2 ? single(entry[1][0]) : shape(entry[1])));
    axis.attr("transform", `translate(0,${height - MARGIN.bottom})`).call(axisBottom(x).ticks(Math.max(2, width / 90), "~d"));
    label
      .attr("x", width - MARGIN.right)
      .attr("y", height - 2)
      .text(`${options.xLabel ?? ""}${together > 1 ? `, means of ${together}` : ""}`);
    nameLayers();
    paint();
  }
  /** Write names of the largest layers, where they are thick enough and no other name is. */
  function nameLayers() {
    const labels = [];
    const bySize = [...layers].map(([id, spans]) => [id, spans, spans.reduce((sum, span) => sum + span[2] - span[1], 0)]).sort((a, b) => b[2] - a[2]);
    for (const [id, spans] of bySize) {
      if (labels.length >= LABELS) break;
      const text = String(options.name?.(id) ?? id),
        half = (text.length * LETTER) / 2 + 4;
      const thick = spans.reduce((best, span) => (span[2] - span[1] > best[2] - best[1] ? span : best));
      const px = bins.length < 2 ? (x.range()[0] + x.range()[1]) / 2 : x(bins[thick[0]].x);
      const label = { id, text, half, px: Math.max(x.range()[0] + half, Math.min(x.range()[1] - half, px)), py: (y(thick[1]) + y(thick[2])) / 2 + 4 };
      const clear = labels.every(other => Math.abs(other.py - label.py) > 14 || Math.abs(other.px - label.px) > other.half + half);
      if (id >= 0 && y(thick[2]) - y(thick[1]) >= 17 && clear) labels.push(label);
    }
    names
      .selectAll("text")
      .data(labels, one => one.id)
      .join("text")
      .attr("class", "stream-name")
      .attr("text-anchor", "middle")
      .attr("x", one => one.px)
      .attr("y", one => one.py)
      .text(one => one.text);
  }
  function paint() {
    layersGroup.selectAll("path").attr("fill-opacity", entry => (marked === null ? 0.8 : entry[0] === marked ? 1 : 0.18));
    names.selectAll("text").attr("opacity", one => (marked === null || one.id === marked ? 1 : 0.3));
    paintMarker();
  }
  function paintMarker() {
    const there = at !== null && current.length;
    marker.attr("visibility", there ? "visible" : "hidden");
    if (there)
      marker
        .attr("x1", x(at))
        .attr("x2", x(at))
        .attr("y1", MARGIN.top - 4)
        .attr("y2", y.range()[1]);
  }
  const columnAt = value => {
    let low = 0,
      high = current.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (current[middle].x <= value) low = middle;
      else high = middle - 1;
    }
    return low;
  };
  function classAt(event) {
    const [px, py] = pointer(event, svg.node());
    if (!current.length || py > y.range()[1]) return null;
    const at = x.invert(px),
      value = y.invert(py),
      bin = bins.reduce((best, one) => (Math.abs(one.x - at) < Math.abs(best.x - at) ? one : best));
    let low = -bin.entries.reduce((sum, entry) => sum + entry[1], 0) / 2;
    for (const [id, size] of bin.entries) {
      if (value >= low && value < low + size) {
        const places = Array.from({ length: bin.to - bin.from }, (_, i) => bin.from + i).filter(place => current[place].sizes.has(id));
        return { id, place: places.reduce((best, place) => (Math.abs(current[place].x - at) < Math.abs(current[best].x - at) ? place : best)) };
      }
      low += size;
    }
    return null;
  }
  svg
    .on("pointermove", event => {
      const hit = classAt(event);
      if (hit) options.tooltip?.show(event.clientX, event.clientY, options.describe?.(hit.id, hit.place) ?? String(hit.id));
      else options.tooltip?.hide();
    })
    .on("pointerleave", () => options.tooltip?.hide())
    .on("click", event => {
      const hit = classAt(event);
      options.onPick?.(hit && hit.id !== marked ? hit.id : null);
    })
    .on("keydown", event => {
      if (event.key === "Escape" && marked !== null) options.onPick?.(null);
      else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        const place = columnAt(at ?? Infinity),
          ids = [...(current[place]?.sizes.keys() ?? [])].sort((a, b) => order(a) - order(b));
        const next = ids[ids.indexOf(marked) + (event.key === "ArrowDown" ? 1 : -1)] ?? ids[event.key === "ArrowDown" ? 0 : ids.length - 1];
        if (next === undefined) return;
        options.onPick?.(next);
        shown = options.describe?.(next, place);
        if (shown) options.announce?.(shown.replaceAll("\n", ", "));
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  element.figureData = () => {
    const sums = new Map();
    for (const { sizes } of current) for (const [id, size] of sizes) sums.set(id, (sums.get(id) ?? 0) + size);
    const largest = [...sums]
      .sort((a, b) => b[1] - a[1])
      .slice(0, LABELS)
      .map(([id]) => id);
    return {
      kind: "lines",
      title: options.title ?? "",
      xLabel: options.xLabel ?? "",
      yLabel: "size",
      log: false,
      series: largest.map(id => ({
        name: String(options.name?.(id) ?? id),
        x: current.map(one => one.x),
        y: current.map(one => one.sizes.get(id) ?? null),
        colour: colour(id),
      })),
    };
  };
  const watcher = new ResizeObserver(draw);
  watcher.observe(element);
  draw();
  return {
    element,
    svg: svg.node(),
    update(next) {
      current = next;
      draw();
    },
    setMarker(value) {
      at = value;
      paintMarker();
    },
    highlight(id) {
      marked = id;
      paint();
    },
    destroy() {
      watcher.disconnect();
      element.remove();
    },
  };
}
