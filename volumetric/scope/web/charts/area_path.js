// The text of an SVG path for a band with more points than pixels: a pixel column reaches from its lowest to its highest.

/** Return the path of the band of {x, low, high} with scales {x, y, usable(value)}; values that are not usable are gaps. */
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
