// Points of two values of which more is better: the front of one step over those of the steps before.
import { axisBottom, axisLeft, extent, pointer, scaleLinear, select } from "../vendor/d3.min.js";
import { h, short } from "../elements.js";
import { colourTable } from "./colours.js";

const MARGIN = { top: 10, right: 14, bottom: 34, left: 56 },
  EARLIER = 40;

/**
 * Return {element, svg, update(fronts), show(place), destroy()}.
 *
 * fronts: [{label, points: [[value, …], …], ids}]; options: {title, axes: [i, j], names, tooltip, onPick(id), announce}
 */
export function frontChart(fronts, options = {}) {
  const svg = select(document.createElementNS("http://www.w3.org/2000/svg", "svg"))
    .attr("tabindex", 0)
    .attr("role", "application")
    .attr("aria-label", options.title ?? "front");
  const earlier = svg.append("g"),
    bottom = svg.append("g"),
    left = svg.append("g"),
    step = svg.append("path"),
    dots = svg.append("g");
  const xName = svg.append("text").attr("text-anchor", "end"),
    yName = svg.append("text");
  const element = h("figure", { class: "chart front" }, svg.node());
  let current = fronts,
    at = fronts.length - 1,
    axes = options.axes ?? [0, 1],
    focus = -1;

  const name = i => options.names?.[i] ?? `objective ${i + 1}`;
  function staircase(points, x, y) {
    const sorted = [...points].sort((a, b) => a[axes[0]] - b[axes[0]]);
    return sorted.map((p, i) => `${i ? `V${y(p[axes[1]])}H` : `M${x(p[axes[0]])},${y(p[axes[1]])}H`}${x(p[axes[0]])}`).join("");
  }
  function draw() {
    const width = Math.max(160, element.clientWidth || 400),
      height = Math.max(140, options.height ?? element.clientHeight ?? 240);
    svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height);
    const scale = (axis, range) => {
      const all = current.flatMap(front => extent(front.points, p => p[axis])).filter(Number.isFinite),
        [low, high] = extent(all);
      const pad = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.06;
      return scaleLinear([(low ?? 0) - pad, (high ?? 1) + pad], range);
    };
    const x = scale(axes[0], [MARGIN.left, width - MARGIN.right]),
      y = scale(axes[1], [height - MARGIN.bottom, MARGIN.top]);
    bottom.attr("transform", `translate(0,${height - MARGIN.bottom})`).call(axisBottom(x).ticks(Math.max(2, width / 90)));
    left.attr("transform", `translate(${MARGIN.left},0)`).call(axisLeft(y).ticks(5));
    xName
      .attr("x", width - MARGIN.right)
      .attr("y", height - 3)
      .text(`${name(axes[0])} →`);
    yName
      .attr("x", 4)
      .attr("y", 9)
      .text(`↑ ${name(axes[1])}`);
    const table = colourTable("viridis"),
      stride = Math.max(1, Math.ceil(at / EARLIER));
    const before = current
      .slice(0, Math.max(0, at))
      .map((front, i) => ({ ...front, i }))
      .filter(front => front.i % stride === 0 && front.points.length);
    earlier
      .selectAll("path")
      .data(before, front => front.i)
      .join("path")
      .attr("fill", "none")
      .attr("stroke-width", 1)
      .attr("stroke-opacity", 0.55)
      .attr("stroke", front => {
        const c = 3 * Math.round(70 + (front.i / Math.max(1, current.length - 1)) * 150);
        return `rgb(${table[c]},${table[c + 1]},${table[c + 2]})`;
      })
      .attr("d", front => staircase(front.points, x, y));
    const front = current[at] ?? { points: [], ids: [] };
    step
      .attr("fill", "none")
      .attr("stroke", "var(--accent)")
      .attr("stroke-width", 2)
      .attr("d", staircase(front.points, x, y));
    dots
      .selectAll("circle")
      .data(front.points)
      .join("circle")
      .attr("r", (_, i) => (i === focus ? 7 : 4.5))
      .attr("fill", "var(--accent)")
      .attr("stroke", "var(--panel)")
      .attr("stroke-width", 1.2)
      .attr("cx", p => x(p[axes[0]]))
      .attr("cy", p => y(p[axes[1]]));
  }
  const describe = i =>
    [`genome ${current[at].ids[i]}`, ...Array.from(current[at].points[i], (value, k) => `${name(k)}: ${short(value)}`)].join("\n");
  function nearest(event) {
    const [px, py] = pointer(event, svg.node());
    let best = -1,
      distance = 16 ** 2;
    dots.selectAll("circle").each(function (_, i) {
      const d = (this.cx.baseVal.value - px) ** 2 + (this.cy.baseVal.value - py) ** 2;
      if (d < distance) {
        distance = d;
        best = i;
      }
    });
    return best;
  }
  svg
    .on("pointermove", event => {
      const i = nearest(event);
      if (i < 0) options.tooltip?.hide();
      else options.tooltip?.show(event.clientX, event.clientY, describe(i));
    })
    .on("pointerleave", () => options.tooltip?.hide())
    .on("click", event => {
      const i = nearest(event);
      if (i >= 0) options.onPick?.(current[at].ids[i]);
    })
    .on("keydown", event => {
      const turn = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key],
        count = current[at]?.points.length ?? 0;
      if (!count || (!turn && event.key !== "Enter")) return;
      event.preventDefault();
      event.stopPropagation();
      if (turn) {
        focus = (focus + turn + count) % count;
        draw();
        options.announce?.(describe(focus).replaceAll("\n", ", "));
      } else if (focus >= 0) options.onPick?.(current[at].ids[focus]);
    });
  element.figureData = () => {
    const places = [...new Set([0, Math.floor(at / 4), Math.floor(at / 2), Math.floor((3 * at) / 4), at])].filter(i => current[i]?.points.length);
    const table = colourTable("viridis");
    return {
      kind: "lines",
      title: options.title ?? "",
      xLabel: name(axes[0]),
      yLabel: name(axes[1]),
      log: false,
      series: places.map((i, k) => {
        const points = [...current[i].points].sort((a, b) => a[axes[0]] - b[axes[0]]),
          c = 3 * Math.round(20 + 200 * (1 - k / Math.max(1, places.length - 1)));
        return {
          name: String(current[i].label),
          x: points.map(p => p[axes[0]]),
          y: points.map(p => p[axes[1]]),
          colour: `rgb(${table[c]},${table[c + 1]},${table[c + 2]})`,
        };
      }),
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
      at = Math.min(at, next.length - 1);
      draw();
    },
    show(place) {
      at = place;
      focus = -1;
      draw();
    },
    setAxes(next) {
      axes = next;
      draw();
    },
    destroy() {
      watcher.disconnect();
      element.remove();
    },
  };
}
