// A tiny histogram, drawn as bars without axes.

/** Return an SVG element; `counts` are of bins of equal width, `label` is for screen readers. */
export function histogram(counts, label, { width = 96, height = 22 } = {}) {
  const make = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const svg = make("svg", { class: "histogram", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const top = Math.max(1, ...counts), step = width / Math.max(1, counts.length);
  counts.forEach((count, i) => {
    const tall = count ? Math.max(1, count / top * height) : 0;
    svg.append(make("rect", { x: i * step + .5, y: height - tall, width: Math.max(.5, step - 1), height: tall }));
  });
  return svg;
}
