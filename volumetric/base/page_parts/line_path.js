// The text of an SVG path for a line with more points than pixels: of the points in a pixel column the first, the lowest,
// the highest and the last are drawn, so that the line looks as if all were. A point between gaps is a dash of a pixel.

/** Return the path of {x, y} with scales {x, y, usable(value)}; values that are not usable are gaps. */
export function linePath(series, scale) {
  const parts = [];
  let open = false,
    column = null,
    low = 0,
    high = 0,
    last = 0,
    lowFirst = true;
  const flush = () => {
    if (column === null) return;
    if (low !== high) {
      parts.push(`L${column},${(lowFirst ? low : high).toFixed(1)}`, `L${column},${(lowFirst ? high : low).toFixed(1)}`);
      if (last !== (lowFirst ? high : low)) parts.push(`L${column},${last.toFixed(1)}`);
    }
    column = null;
  };
  const close = () => {
    flush();
    if (parts.at(-1)?.startsWith("M")) parts.push("h1");
    open = false;
  };
  const dense = series.x.length > 1500;
  for (let i = 0; i < series.x.length; i++) {
    if (!scale.usable(series.y[i])) {
      close();
      continue;
    }
    const exact = scale.x(series.x[i]),
      x = dense ? Math.round(exact * 2) / 2 : Math.round(exact * 10) / 10,
      y = scale.y(series.y[i]);
    if (open && x === column) {
      if (y < low) {
        low = y;
        lowFirst = false;
      }
      if (y > high) {
        high = y;
        lowFirst = true;
      }
      last = y;
      continue;
    }
    flush();
    parts.push(`${open ? "L" : "M"}${x},${y.toFixed(1)}`);
    open = true;
    column = x;
    low = high = last = y;
  }
  close();
  return parts.join("");
}
