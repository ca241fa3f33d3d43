// A chart of lines over a number, as SVG: axes, legend, hover with values. New points change only what they reach.
import { axisBottom, axisLeft, bisector, extent, pointer, scaleLinear, scaleLog, scaleSymlog, select } from "../vendor/d3.min.js";
import { h, short } from "../elements.js";
import { linePath } from "../line_path.js";
import { areaPath } from "./area_path.js";
import { classColour } from "./colours.js";

const MARGIN = { top: 10, right: 12, bottom: 36, left: 40 };
const LETTER = 6.4; // width of a letter of an axis, in pixels

/**
 * Return {element, svg, update(series, more), setMarker(x or null), destroy()}.
 *
 * series: [{name, x: numbers, y: numbers, low?, high?, colour?, dashed?, faint?, dots?}] with x ascending; numbers that are not
 * finite are gaps; between low and high a band is drawn. A line may have more points than pixels: peaks stay visible.
 * options: {title, xLabel, yLabel, log, height, tooltip, onPick(x), legend: false hides it, marks: [{x, text, colour?}], format(y)}
 * `more` in `update` changes options; log "symmetric" also takes numbers below 0. The marker is an upright line.
 */
export function lineChart(series, options = {}) {
  const element = h("figure", { class: "chart" }, options.title ? h("figcaption", {}, options.title) : null);
  const height = options.height ?? 220;
  const svg = select(element)
    .append("svg")
    .attr("height", height)
    .attr("role", "img")
    .attr("tabindex", 0)
    .attr("aria-label", options.title ?? options.yLabel ?? "chart");
  const legend = h("div", { class: "chart-legend" });
  element.append(legend);
  const xAxis = svg.append("g"),
    yAxis = svg.append("g"),
    marks = svg.append("g"),
    lines = svg.append("g");
  const xLabel = svg.append("text").attr("text-anchor", "end"),
    empty = svg.append("text").attr("text-anchor", "middle");
  const marker = svg
    .append("line")
    .attr("class", "marker")
    .attr("stroke", "currentColor")
    .attr("stroke-opacity", 0.75)
    .attr("stroke-width", 1.5)
    .attr("visibility", "hidden");
  const rule = svg.append("line").attr("stroke", "currentColor").attr("stroke-opacity", 0.4).attr("visibility", "hidden");
  const paths = new Map(),
    hidden = new Set();
  let current = series,
    x = null,
    axes = "",
    legendText = "",
    pointed = null,
    marked = null;

  const strict = () => options.log && options.log !== "symmetric";
  const usable = value => (strict() ? value > 0 : true) && Number.isFinite(value);
  const shown = () => current.filter(one => !hidden.has(one.name));
  const colourOf = one => one.colour ?? classColour(current.indexOf(one));

  function range(all) {
    let low = Infinity,
      high = -Infinity;
    for (const one of all) {
      for (const of of one.low ? [one.low, one.high, one.y] : [one.y]) {
        for (let i = 0; i < of.length; i++)
          if (usable(of[i])) {
            low = Math.min(low, of[i]);
            high = Math.max(high, of[i]);
          }
      }
    }
    return low > high ? null : [low, high];
  }
  function draw() {
    const width = Math.max(160, element.clientWidth || 480),
      visible = shown();
    svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width);
    const xs = extent(visible.flatMap(one => [one.x[0], one.x[one.x.length - 1]]).filter(Number.isFinite)),
      ys = range(visible);
    const something = xs[0] !== undefined && ys !== null;
    empty
      .attr("x", width / 2)
      .attr("y", height / 2)
      .text(something ? "" : strict() && visible.length ? "no values above 0" : "no values");
    for (const part of [xAxis, yAxis, marks, lines, xLabel]) part.attr("visibility", something ? "visible" : "hidden");
    drawLegend();
    if (!something) {
      x = null;
      mark();
      return;
    }
    const pad = ys[0] === ys[1] ? Math.abs(ys[0]) * 0.1 || 1 : 0;
    const y = (strict() ? scaleLog() : options.log ? scaleSymlog() : scaleLinear())
      .domain(strict() ? [ys[0] * (pad ? 0.5 : 1), ys[1] * (pad ? 2 : 1)] : [ys[0] - pad, ys[1] + pad])
      .nice()
      .range([height - MARGIN.bottom, MARGIN.top]);
    const decades = strict() ? Math.log10(y.domain()[1] / y.domain()[0]) : 0;
    const yTicks = strict() ? Math.max(2, Math.min(5, decades)) : 5;
    const format = y.tickFormat(yTicks, strict() && decades > 2 ? "~e" : Math.max(...y.domain().map(Math.abs)) >= 1e5 ? ".2~e" : "~g");
    const left = Math.max(MARGIN.left, 16 + LETTER * Math.max(...y.ticks(yTicks).map(tick => format(tick).length)));
    x = scaleLinear(xs[0] === xs[1] ? [xs[0] - 0.5, xs[1] + 0.5] : xs, [left, width - MARGIN.right]);
    const state = JSON.stringify([width, x.domain(), y.domain(), options.log, options.xLabel]);
    if (state !== axes) {
      axes = state;
      xAxis.attr("transform", `translate(0,${height - MARGIN.bottom})`).call(axisBottom(x).ticks(Math.max(2, width / 90), "~s"));
      yAxis.attr("transform", `translate(${left},0)`).call(axisLeft(y).ticks(yTicks).tickFormat(format));
      xLabel
        .attr("x", width - MARGIN.right)
        .attr("y", height - 2)
        .text(options.xLabel ?? "");
      for (const upright of [rule, marker]) upright.attr("y1", MARGIN.top).attr("y2", height - MARGIN.bottom);
    }
    mark();
    const old = new Set(paths.keys());
    for (const one of visible) {
      const scaled = { x: value => x(value), y: value => y(value), usable };
      if (one.low) put(`${one.name} band`, areaPath(one, scaled), { fill: colourOf(one), "fill-opacity": one.faint ? 0.16 : 0.2, stroke: "none" });
      put(`${one.name}${one.faint ? " faint" : ""}`, linePath(one, scaled), {
        fill: "none",
        stroke: colourOf(one),
        "stroke-width": one.faint ? 1 : 1.8,
        "stroke-opacity": one.faint ? 0.32 : 1,
        "stroke-dasharray": one.dashed ? "5 3" : null,
        "stroke-linejoin": "round",
      });
      if (one.dots && one.x.length <= 60) {
        let dots = "";
        for (let i = 0; i < one.x.length; i++) if (usable(one.y[i])) dots += `M${x(one.x[i]).toFixed(1)},${y(one.y[i]).toFixed(1)}h0`;
        put(`${one.name} dots`, dots, { fill: "none", stroke: colourOf(one), "stroke-width": 5, "stroke-linecap": "round" });
      }
    }
    for (const key of old) {
      paths.get(key).remove();
      paths.delete(key);
    }
    marks.selectAll("*").remove();
    for (const mark of options.marks ?? []) {
      if (mark.x < x.domain()[0] || mark.x > x.domain()[1]) continue;
      const of = marks
        .append("g")
        .attr("class", "chart-mark")
        .attr("transform", `translate(${x(mark.x)},0)`);
      of.append("line")
        .attr("y1", MARGIN.top)
        .attr("y2", height - MARGIN.bottom)
        .attr("stroke", mark.colour ?? "var(--odd)")
        .attr("stroke-dasharray", "2 3");
      of.append("path")
        .attr("d", `M-4,${MARGIN.top - 4}h8l-4,6z`)
        .attr("fill", mark.colour ?? "var(--odd)");
      of.append("title").text(mark.text);
    }

    function put(key, d, attributes) {
      old.delete(key);
      if (!paths.has(key)) paths.set(key, lines.append("path"));
      const path = paths.get(key).attr("d", d);
      for (const [name, value] of Object.entries(attributes)) path.attr(name, value);
    }
  }
  function mark() {
    const seen = x !== null && marked !== null;
    marker.attr("visibility", seen ? "visible" : "hidden");
    if (seen) marker.attr("x1", x(marked)).attr("x2", x(marked));
  }
  function drawLegend() {
    const named = current.filter(one => !one.faint);
    const text = JSON.stringify(named.map(one => [one.name, colourOf(one), hidden.has(one.name), one.dashed]));
    if (text === legendText) return;
    legendText = text;
    legend.replaceChildren(
      ...named.map(one =>
        h(
          "button",
          {
            type: "button",
            class: "key",
            "aria-pressed": String(!hidden.has(one.name)),
            title: `Show or hide ${one.name}`,
            onclick() {
              if (!hidden.delete(one.name)) hidden.add(one.name);
              draw();
            },
          },
          h("span", {
            class: one.dashed ? "swatch dashed" : "swatch",
            style: `--of:${colourOf(one)};background:${one.dashed ? "" : colourOf(one)}`,
          }),
          one.name,
        ),
      ),
    );
    legend.hidden = named.length < 2 || options.legend === false;
  }
  function point(at, clientX, clientY) {
    const rows = shown()
      .filter(one => !one.faint && one.x.length)
      .map(one => {
        const k = Math.min(one.x.length - 1, bisector(value => value).center(one.x, at));
        return { name: one.name, x: one.x[k], y: one.y[k], low: one.low?.[k], high: one.high?.[k] };
      });
    if (!rows.length || !x) return;
    const near = rows.reduce((best, row) => (Math.abs(row.x - at) < Math.abs(best.x - at) ? row : best));
    rule.attr("x1", x(near.x)).attr("x2", x(near.x)).attr("visibility", "visible");
    pointed = near.x;
    const box = svg.node().getBoundingClientRect(),
      format = options.format ?? short;
    const wide = row => row.low !== undefined && row.low !== row.high;
    const lines = rows.map(row => `${row.name}: ${format(row.y)}${wide(row) ? ` (${format(row.low)} … ${format(row.high)})` : ""}`);
    const marked = (options.marks ?? []).filter(mark => Math.abs(x(mark.x) - x(near.x)) < 6).map(mark => mark.text);
    options.tooltip?.show(
      clientX ?? box.left + x(near.x),
      clientY ?? box.top + MARGIN.top,
      [`${options.xLabel ?? "x"} ${short(near.x)}`, ...lines, ...marked].join("\n"),
    );
  }
  const leave = () => {
    rule.attr("visibility", "hidden");
    pointed = null;
    options.tooltip?.hide();
  };
  svg
    .on("pointermove", event => {
      if (x) point(x.invert(pointer(event)[0]), event.clientX, event.clientY);
    })
    .on("pointerleave", leave)
    .on("blur", leave)
    .on("click", event => {
      if (x) options.onPick?.(x.invert(pointer(event)[0]));
    })
    .on("keydown", event => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        first = shown().find(one => !one.faint && one.x.length);
      if (event.key === "Enter" && pointed !== null) options.onPick?.(pointed);
      if (event.key === "Escape") leave();
      if (!step || !first) return;
      event.preventDefault();
      event.stopPropagation();
      const many = Math.max(1, Math.round(first.x.length / 200)),
        at = pointed === null ? (step > 0 ? -many : first.x.length) : bisector(value => value).center(first.x, pointed);
      point(first.x[Math.max(0, Math.min(first.x.length - 1, at + step * many))]);
    });
  element.figureData = () => ({
    kind: "lines",
    title: options.title ?? "",
    xLabel: options.xLabel ?? "",
    yLabel: options.yLabel ?? "",
    log: Boolean(options.log),
    series: current
      .filter(one => !hidden.has(one.name))
      .map((one, i) => ({
        name: one.name,
        x: [...one.x],
        y: Array.from(one.y, value => (Number.isFinite(value) ? value : null)),
        colour: one.colour ?? classColour(i),
        dashed: Boolean(one.dashed),
        faint: Boolean(one.faint),
      })),
  });
  const watcher = new ResizeObserver(draw);
  watcher.observe(element);
  draw();
  return {
    element,
    svg: svg.node(),
    update(next, more = {}) {
      current = next;
      Object.assign(options, more);
      draw();
    },
    setMarker(value) {
      marked = value;
      mark();
    },
    destroy() {
      watcher.disconnect();
      element.remove();
    },
  };
}
