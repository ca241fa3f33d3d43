// Colours of edges: one, by kind, by delay, by weight or by strength.
import { classColour, classRgb, colourTable } from "../charts/colours.js";
import { short } from "../elements.js";

const kindClass = i => [3, 2, 6, 5, 0, 1, 7][(i - 1) % 7]; // not those that groups of nodes have first

/** Return {modes(), mode(choice), paint(choice, theme) → bytes r, g, b, a of each edge, legend(choice), setValues, setMask, set(edges)}. */
export function makeEdgeColours(first) {
  let edges = first,
    values = null,
    mask = null,
    latest = 0,
    largest = 0;
  const measure = () => {
    latest = edges.delay.data.reduce((a, b) => Math.max(a, b), 0);
    largest = edges.weight?.data.reduce((a, b) => (Math.abs(b) < Infinity ? Math.max(a, Math.abs(b)) : a), 0) ?? 0;
  };
  measure();
  const modes = () => [
    ["plain", "one colour"],
    ...(edges.kinds.length > 1 ? [["kind", "kind"]] : []),
    ...(latest > 1 ? [["delay", "delay"]] : []),
    ...(largest > 0 ? [["weight", "weight"]] : []),
    ...(values ? [["strength", "strength"]] : []),
  ];
  const mode = choice => {
    const names = modes().map(one => one[0]);
    return names.includes(choice)
      ? choice
      : (["strength", "weight"].find(name => names.includes(name)) ?? (names.includes("kind") ? "kind" : "plain"));
  };
  const hue = delay => 3 * Math.round(40 + 190 * Math.min(1, (delay - 1) / Math.max(1, latest - 1)));
  return {
    modes,
    mode,
    set(next) {
      edges = next;
      values = null;
      mask = null;
      measure();
    },
    setValues(next) {
      values = next ? Uint8Array.from(next) : null;
    },
    setMask(next) {
      mask = next ? Uint8Array.from(next) : null;
    },
    cut: edge => Boolean(mask && !mask[edge]),
    paint(choice, theme) {
      const count = edges.source.data.length,
        rgba = new Uint8Array(4 * count),
        by = mode(choice),
        kinds = edges.kinds.map((_, i) => (i ? classRgb(kindClass(i)) : theme.dim)),
        table = colourTable("viridis");
      const around = colourTable("PuOr");
      for (let i = 0; i < count; i++) {
        const p = 4 * i,
          code = by === "delay" ? hue(Math.max(1, edges.delay.data[i])) : 0;
        const colour =
          by === "kind"
            ? kinds[edges.kind.data[i]]
            : by === "delay"
              ? table.subarray(code, code + 3)
              : by === "strength" && values?.[i] > 0
                ? theme.accent
                : theme.dim;
        rgba.set(colour, p);
        if (by === "weight") {
          const weight = edges.weight.data[i],
            share = Math.max(-1, Math.min(1, weight / largest)),
            shade = 3 * Math.round(127.5 + 127.5 * Math.sign(share) * (theme.dark ? 0.5 : 0.45 + 0.4 * Math.sqrt(Math.abs(share))));
          if (weight - weight === 0) rgba.set(around.subarray(shade, shade + 3), p);
          else rgba.set(theme.odd, p);
          rgba[p + 3] = 60 + 195 * Math.sqrt(Math.abs(share) || 0);
          if (mask && !mask[i]) {
            rgba.set(theme.odd, p);
            rgba[p + 3] = 26;
          }
          continue;
        }
        rgba[p + 3] = by === "strength" && i < values.length ? 40 + (values[i] * 215) / 255 : 200;
        if (mask && !mask[i]) {
          rgba.set(theme.odd, p);
          rgba[p + 3] = 26;
        }
      }
      return rgba;
    },
    /** Return what the legend says about edges: [[colour or "taper" or "dashes", text]]. */
    legend(choice, theme) {
      if (!edges.source.data.length) return [];
      const by = mode(choice),
        lines = [["taper", "edge, from its wide end to its thin end"]];
      if (by === "kind") lines.push(...edges.kinds.slice(0, 8).map((name, i) => [i ? classColour(kindClass(i)) : `rgb(${theme.dim})`, name]));
      if (by === "weight") {
        const shade = share => {
          const code = 3 * Math.round(127.5 + 127.5 * share);
          return `rgb(${colourTable("PuOr").subarray(code, code + 3)})`;
        };
        lines.push(
          [shade(theme.dark ? -0.5 : -0.85), `weight below 0, to ${short(-largest)}`],
          [shade(theme.dark ? 0.5 : 0.85), `weight above 0, to ${short(largest)}`],
        );
      }
      if (by === "strength") lines.push([`rgb(${theme.accent})`, "stronger edges are fuller"]);
      if (latest > 1) {
        lines.push(["dashes", latest > 12 ? `dashes: delay in ticks (12: 12 to ${latest})` : "dashes: delay in ticks"]);
        if (by === "delay") {
          const table = colourTable("viridis"),
            colour = delay => `rgb(${table.subarray(hue(delay), hue(delay) + 3)})`;
          lines.push([colour(1), "delay 0 or 1"], [colour(latest), `delay ${latest}`]);
        }
      }
      if (mask) lines.push([`rgb(${theme.odd})`, "cut"]);
      return lines;
    },
  };
}
