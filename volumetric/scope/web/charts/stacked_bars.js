// Horizontal bars of parts, one above the other: bars of equal scale with a name on the left and the sum on the right.
import { scaleLinear, select } from "../vendor/d3.min.js";
import { h } from "../elements.js";

/**
 * Return {element, svg, update(bars), choose(index or null), destroy()}.
 *
 * bars: [{name, parts: [{value, colour, name}], text}]; options: {label, tooltip, onPick(index or null), describe(bar, part) → text}
 */
export function stackedBars(bars, options = {}) {
  const element = h("figure", { class: "chart bars" });
  const svg = select(element)
    .append("svg")
    .attr("role", "group")
    .attr("aria-label", options.label ?? "bars");
  let current = bars,
    chosen = null,
    focused = 0;
  function draw() {
    const width = Math.max(220, element.clientWidth || 420);
    const tall = Math.max(13, Math.min(22, Math.floor(520 / Math.max(1, current.length))));
    const left = Math.min(120, 12 + 6.4 * Math.max(...current.map(bar => bar.name.length), 1)),
      right = 72;
    const x = scaleLinear([0, Math.max(...current.map(bar => bar.parts.reduce((sum, part) => sum + part.value, 0)), 1e-12)], [left, width - right]);
    svg
      .attr("viewBox", `0 0 ${width} ${current.length * tall + 2}`)
      .attr("width", width)
      .attr("height", current.length * tall + 2);
    const had = svg.node().contains(document.activeElement);
    svg.selectAll("*").remove();
    current.forEach((bar, i) => {
      const group = svg
        .append("g")
        .attr("class", "bar")
        .attr("transform", `translate(0,${i * tall + 1})`)
        .attr("tabindex", i === focused ? 0 : -1)
        .attr("role", "button")
        .attr("aria-pressed", String(i === chosen))
        .attr("aria-label", `${bar.name}: ${bar.text}`)
        .attr("opacity", chosen === null || chosen === i ? 1 : 0.35);
      group.append("rect").attr("class", "bar-back").attr("width", width).attr("height", tall).attr("fill", "transparent");
      group
        .append("text")
        .attr("x", left - 8)
        .attr("y", tall / 2)
        .attr("dy", ".35em")
        .attr("text-anchor", "end")
        .text(bar.name);
      let sum = 0;
      for (const part of bar.parts) {
        if (!(part.value > 0)) continue;
        const from = x(sum),
          to = x((sum += part.value));
        group
          .append("rect")
          .attr("x", from)
          .attr("y", 1.5)
          .attr("width", Math.max(0.75, to - from - 0.75))
          .attr("height", tall - 3)
          .attr("rx", 1.5)
          .attr("fill", part.colour)
          .on("pointermove", event =>
            options.tooltip?.show(event.clientX, event.clientY, options.describe?.(bar, part) ?? `${bar.name}, ${part.name}`),
          )
          .on("pointerleave", () => options.tooltip?.hide());
      }
      group
        .append("text")
        .attr("x", x(sum) + 6)
        .attr("y", tall / 2)
        .attr("dy", ".35em")
        .text(bar.text);
      group.on("click", () => pick(i));
    });
    if (had) svg.selectAll(".bar").nodes()[focused]?.focus();
  }
  function pick(i) {
    chosen = chosen === i ? null : i;
    focused = i;
    draw();
    options.onPick?.(chosen);
  }
  svg.on("keydown", event => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      pick(focused);
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    focused = Math.max(0, Math.min(current.length - 1, focused + step));
    const all = svg.selectAll(".bar").nodes();
    all.forEach((node, i) => node.setAttribute("tabindex", i === focused ? 0 : -1));
    all[focused].focus();
  });
  const watcher = new ResizeObserver(draw);
  watcher.observe(element);
  draw();
  return {
    element,
    svg: svg.node(),
    update(next) {
      current = next;
      focused = Math.min(focused, next.length - 1);
      draw();
    },
    choose(i) {
      chosen = i;
      draw();
    },
    destroy() {
      watcher.disconnect();
      element.remove();
    },
  };
}
