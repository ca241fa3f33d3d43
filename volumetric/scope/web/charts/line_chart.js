// A chart of lines over a number, as SVG: axes, legend, hover with values, zoom along x.
import { area, axisBottom, axisLeft, bisector, extent, line, pointer, scaleLinear, scaleLog, scaleSymlog, select } from "../vendor/d3.min.js";
import { h, short } from "../elements.js";
import { classColour } from "./colours.js";

const MARGIN = { top: 10, right: 12, bottom: 30, left: 52 };

/**
 * Return {element, svg, update(series), setMarker(x), setLog(log), destroy()}.
 *
 * series: [{name, x: numbers, y: numbers, colour?, dashed?, faint?, low?, high?}] with x ascending; numbers that are not
 * finite are gaps; between `low` and `high` a band is filled.
 * options: {title, xLabel, yLabel, log, height, tooltip, onPick(x)}; log "symmetric" also takes numbers below 0
 */
export function lineChart(series, options = {}) {
  const height = options.height ?? 220;
  let marked = null, marker = null;
  const mark = () => marker?.attr("visibility", marked === null ? "hidden" : "visible").attr("x1", x(marked ?? 0)).attr("x2", x(marked ?? 0));
  const element = h("figure", { class: "chart" }, options.title ? h("figcaption", {}, options.title) : null);
  const svg = select(element).append("svg").attr("height", height).attr("role", "img").attr("aria-label", options.title ?? options.yLabel ?? "chart");
  const legend = h("div", { class: "chart-legend" });
  element.append(legend);
  let current = series, x = null;
  const hidden = new Set();

  function draw() {
    const width = Math.max(160, element.clientWidth || 480);
    svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width);
    svg.selectAll("*").remove();
    const shown = current.filter(one => !hidden.has(one.name));
    const xs = extent(shown.flatMap(one => extent(one.x)).filter(Number.isFinite));
    const strict = options.log && options.log !== "symmetric";
    const positive = strict ? value => value > 0 : Number.isFinite;
    const ys = extent(shown.flatMap(one => [one.y, one.low ?? [], one.high ?? []].flatMap(values => Array.from(values).filter(value => Number.isFinite(value) && positive(value)))));
    if (xs[0] === undefined || ys[0] === undefined) {
      svg.append("text").attr("x", width / 2).attr("y", height / 2).attr("text-anchor", "middle").text("no values");
      return;
    }
    x = scaleLinear(xs[0] === xs[1] ? [xs[0] - .5, xs[1] + .5] : xs, [MARGIN.left, width - MARGIN.right]);
    const pad = ys[0] === ys[1] ? Math.abs(ys[0]) * .1 || 1 : 0;
    const y = (strict ? scaleLog() : options.log ? scaleSymlog() : scaleLinear())
      .domain(strict ? [ys[0] * (pad ? .5 : 1), ys[1] * (pad ? 2 : 1)] : [ys[0] - pad, ys[1] + pad]).nice().range([height - MARGIN.bottom, MARGIN.top]);
    svg.append("g").attr("transform", `translate(0,${height - MARGIN.bottom})`).call(axisBottom(x).ticks(Math.max(2, width / 90), "~s"));
    svg.append("g").attr("transform", `translate(${MARGIN.left},0)`).call(axisLeft(y).ticks(5, strict ? "~e" : undefined));
    if (options.xLabel) svg.append("text").attr("x", width - MARGIN.right).attr("y", height - 2).attr("text-anchor", "end").text(options.xLabel);
    for (const [i, one] of current.entries()) {
      if (hidden.has(one.name)) continue;
      if (one.low) {
        const band = area().defined(k => positive(one.low[k]) && positive(one.high[k])).x(k => x(one.x[k])).y0(k => y(one.low[k])).y1(k => y(one.high[k]));
        svg.append("path").attr("fill", one.colour ?? classColour(i)).attr("fill-opacity", .16).attr("d", band(Array.from(one.x.keys())));
      }
      const path = line().defined(k => positive(one.y[k])).x(k => x(one.x[k])).y(k => y(one.y[k]));
      svg.append("path").attr("fill", "none").attr("stroke", one.colour ?? classColour(i)).attr("stroke-width", one.faint ? 1 : 1.8)
        .attr("stroke-opacity", one.faint ? .3 : 1).attr("stroke-dasharray", one.dashed ? "4 3" : null).attr("d", path(Array.from(one.x.keys())));
    }
    marker = svg.append("line").attr("class", "marker").attr("y1", MARGIN.top).attr("y2", height - MARGIN.bottom).attr("stroke", "currentColor").attr("stroke-opacity", .75).attr("stroke-width", 1.5);
    mark();
    const rule = svg.append("line").attr("y1", MARGIN.top).attr("y2", height - MARGIN.bottom).attr("stroke", "currentColor").attr("stroke-opacity", .4).attr("visibility", "hidden");
    svg.on("pointermove", event => {
      const at = x.invert(pointer(event)[0]);
      const lines = shown.filter(one => !one.faint).map(one => {
        const k = Math.min(one.x.length - 1, bisector(value => value).center(one.x, at));
        return k < 0 ? null : { name: one.name, x: one.x[k], y: one.y[k] };
      }).filter(Boolean);
      if (!lines.length) return;
      rule.attr("x1", x(lines[0].x)).attr("x2", x(lines[0].x)).attr("visibility", "visible");
      options.tooltip?.show(event.clientX, event.clientY, [`${options.xLabel ?? "x"} ${short(lines[0].x)}`, ...lines.map(one => `${one.name}: ${short(one.y)}`)].join("\n"));
    }).on("pointerleave", () => { rule.attr("visibility", "hidden"); options.tooltip?.hide(); })
      .on("click", event => options.onPick?.(x.invert(pointer(event)[0])));
    legend.replaceChildren(...current.filter(one => !one.faint).map((one, i) => h("button", {
      type: "button", class: "key", "aria-pressed": String(!hidden.has(one.name)), title: `Show or hide ${one.name}`,
      onclick() { if (!hidden.delete(one.name)) hidden.add(one.name); draw(); },
    }, h("span", { class: "swatch", style: `background:${swatch(one)}` }), one.name)));
    legend.hidden = current.filter(one => !one.faint).length < 2;
  }
  element.figureData = () => ({
    kind: "lines", title: options.title ?? "", xLabel: options.xLabel ?? "", yLabel: options.yLabel ?? "", log: Boolean(options.log),
    series: current.filter(one => !hidden.has(one.name)).map((one, i) => ({
      name: one.name, x: [...one.x], y: Array.from(one.y, value => (Number.isFinite(value) ? value : null)), colour: one.colour ?? classColour(i),
      dashed: Boolean(one.dashed), faint: Boolean(one.faint),
    })),
  });
  const swatch = one => {
    const colour = one.colour ?? classColour(current.indexOf(one));
    return one.dashed ? `repeating-linear-gradient(90deg, ${colour} 0 3px, transparent 3px 5px)` : colour;
  };
  const watcher = new ResizeObserver(draw);
  watcher.observe(element);
  draw();
  return {
    element,
    svg: svg.node(),
    update(next) { current = next; draw(); },
    setMarker(value) { marked = value; if (x) mark(); },
    setLog(log) { options.log = log; draw(); },
    destroy() { watcher.disconnect(); element.remove(); },
  };
}
