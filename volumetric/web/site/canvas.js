// A canvas that is drawn again when its size or the scheme of colours changes.

const SERIES = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-6"];

/** Call `draw(context, width, height, colour)` now, at each change of size, and when `redraw` is called. */
export function drawn(canvas, draw) {
  const context = canvas.getContext("2d");
  const redraw = () => {
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return;
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height, name => colourOf(canvas, name));
  };
  new ResizeObserver(redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours.clear(); redraw(); });
  return redraw;
}

/** The colour of the i-th series of numbers. */
export const series = i => SERIES[i % SERIES.length];

const colours = new Map();

/** What a variable of the style sheet means now, as rgb(…). */
function colourOf(element, name) {
  if (!colours.has(name)) {
    const before = element.style.color;
    element.style.color = `var(${name})`;
    colours.set(name, getComputedStyle(element).color);
    element.style.color = before;
  }
  return colours.get(name);
}

/** The parts of a colour as numbers. */
export const channels = colour => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
