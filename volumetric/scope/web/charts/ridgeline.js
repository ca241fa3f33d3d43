// Histograms one behind the other, oldest at the back, as SVG.
import { axisBottom, pointer, scaleLinear, select } from "../vendor/d3.min.js";
import { h, short } from "../elements.js";
import { colourTable } from "./colours.js";

const MARGIN = { top: 8, right: 14, bottom: 30, left: 66 };
const LIFT = 2.2; // height of the highest peak, in distances of rows

/**
 * Return {element, svg, update(rows), destroy()}.
 *
 * rows: [{label, low, high, shares: numbers}] with bins of equal width from low to high, from first to last.
 * options: {title, xLabel, height, tooltip}
 */
export function ridgeline(rows, options = {}) {
  const height = options.height ?? 320;
  const element = h("figure", { class: "chart" }, options.title ? h("figcaption", {}, options.title) : null);
  const svg = select(element)
    .append("svg")
    .attr("height", height)
    .attr("role", "img")
    .attr("aria-label", options.title ?? "histograms");
  let current = rows,
    x = null,
    y = null,
    step = 0;

  function draw() {
    const width = Math.max(160, element.clientWidth || 480);
    svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width);
    svg.selectAll("*").remove();
    const usable = current.filter(row => row.high >= row.low);
    if (!usable.length) {
      svg
        .append("text")
        .attr("x", width / 2)
        .attr("y", height / 2)
        .attr("text-anchor", "middle")
        .text("no values");
      return;
    }
    const low = Math.min(...usable.map(row => row.low)),
      high = Math.max(...usable.map(row => row.high));
    x = scaleLinear(low < high ? [low, high] : [low - 0.5, high + 0.5], [MARGIN.left, width - MARGIN.right]).nice();
    step = (height - MARGIN.top - MARGIN.bottom) / (usable.length - 1 + LIFT);
    const top = MARGIN.top + step * (LIFT - 1);
    y = i => top + step * (i + 1);
    // heights are densities: a narrow histogram is as high as it is narrow
    const density = row => row.shares.map(share => (share / (row.high - row.low || 1e-9)) * row.shares.length);
    const most = Math.max(...usable.map(row => Math.max(...density(row)))),
      lift = LIFT * step;
    const table = colourTable("viridis");
    svg
      .append("g")
      .attr("transform", `translate(0,${height - MARGIN.bottom})`)
      .call(axisBottom(x).ticks(Math.max(2, width / 90), "~g"));
    if (options.xLabel)
      svg
        .append("text")
        .attr("x", width - MARGIN.right)
        .attr("y", height - 2)
        .attr("text-anchor", "end")
        .text(options.xLabel);
    const every = Math.max(1, Math.ceil(13 / step));
    usable.forEach((row, i) => {
      const values = density(row),
        wide = (row.high - row.low) / values.length,
        base = y(i);
      const points = values.map((value, k) => [x(row.low + (k + 0.5) * wide), base - (value / most) * lift]);
      const line = [[x(row.low), base], ...points, [x(row.high), base]].map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join("L");
      const at = 3 * Math.round(usable.length < 2 ? 150 : 60 + (i / (usable.length - 1)) * 180);
      const colour = `rgb(${table[at]},${table[at + 1]},${table[at + 2]})`;
      svg.append("path").attr("d", `M${line}Z`).attr("fill", colour).attr("fill-opacity", 0.55).attr("stroke", "none");
      svg.append("path").attr("d", `M${line}`).attr("fill", "none").attr("stroke", colour).attr("stroke-width", 1.4).attr("stroke-linejoin", "round");
      svg
        .append("line")
        .attr("x1", MARGIN.left)
        .attr("x2", width - MARGIN.right)
        .attr("y1", base)
        .attr("y2", base)
        .attr("stroke", "var(--line)")
        .attr("stroke-opacity", 0.6);
      if ((usable.length - 1 - i) % every === 0)
        svg
          .append("text")
          .attr("x", MARGIN.left - 8)
          .attr("y", base + 1)
          .attr("text-anchor", "end")
          .text(row.label);
    });
    svg
      .on("pointermove", event => {
        const [px, py] = pointer(event),
          i = Math.max(0, Math.min(usable.length - 1, Math.ceil((py - MARGIN.top - step * (LIFT - 1)) / step) - 1)),
          row = usable[i];
        const wide = (row.high - row.low) / row.shares.length,
          k = Math.floor((x.invert(px) - row.low) / wide);
        const part =
          k >= 0 && k < row.shares.length
            ? `${short(row.low + k * wide)} … ${short(row.low + (k + 1) * wide)}: ${(100 * row.shares[k]).toFixed(1)} %`
            : "outside";
        options.tooltip?.show(event.clientX, event.clientY, `${row.label}\n${part}\nall from ${short(row.low)} to ${short(row.high)}`);
      })
      .on("pointerleave", () => options.tooltip?.hide());
  }
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
    destroy() {
      watcher.disconnect();
      element.remove();
    },
  };
}
