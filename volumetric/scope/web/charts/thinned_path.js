// Texts of SVG paths for lines with more points than pixels: of the points in a pixel column the first, the lowest, the
// highest and the last are drawn, so that a line looks as if all were.

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
  const dense = series.x.length > 1500;
  for (let i = 0; i < series.x.length; i++) {
    if (!scale.usable(series.y[i])) {
      flush();
      open = false;
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
  flush();
  return parts.join("");
}

/** Return the path of the band between low and high. */
export function areaPath(series, scale) {
  const parts = [];
  let upper = [],
    lower = [],
    column = null,
    top = 0,
    bottom = 0;
  const put = () => {
    if (column === null) return;
    upper.push(`${column},${top.toFixed(1)}`);
    lower.push(`${column},${bottom.toFixed(1)}`);
    column = null;
  };
  const close = () => {
    put();
    if (upper.length) parts.push(`M${upper.join("L")}L${lower.reverse().join("L")}Z`);
    upper = [];
    lower = [];
  };
  for (let i = 0; i < series.x.length; i++) {
    if (!scale.usable(series.low[i]) || !scale.usable(series.high[i])) {
      close();
      continue;
    }
    const x = Math.round(scale.x(series.x[i]) * 2) / 2,
      a = scale.y(series.high[i]),
      b = scale.y(series.low[i]);
    if (x === column) {
      top = Math.min(top, a);
      bottom = Math.max(bottom, b);
      continue;
    }
    put();
    column = x;
    top = a;
    bottom = b;
  }
  close();
  return parts.join("");
}
