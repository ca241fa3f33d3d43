// What colours and sizes of nodes and edges mean: choices that the user makes among the numbers and classes that there are.
import { classRgb, colourTable, DIVERGING_NAMES, gradient, MAP_NAMES } from "../charts/colours.js";
import { short } from "../elements.js";
import { LOOK } from "./node_tables.js";

/** Maps that the menu offers, besides "auto". */
export const MAPS = [...MAP_NAMES, ...DIVERGING_NAMES.filter(name => name === "PuOr")];
const SMALL = 0.55,
  LARGE = 1.35;

const limits = values => {
  let low = Infinity,
    high = -Infinity;
  for (const value of values)
    if (value - value === 0) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return low > high ? [0, 1] : low === high ? [Math.min(0, low), low > 0 ? low : low < 0 ? 0 : 1] : [low, high];
};

/** Return channels and choices of a scene; see renderer.js for what a channel is. */
export function makePalette(tables, lists, count) {
  const channels = new Map(),
    choice = { colour: "", size: "same", map: "auto", scale: "linear", edges: "auto" };
  const odd = new Uint8Array(count);
  let fired = null,
    mask = null,
    past = null,
    sizesPast = null,
    pastLegend = null,
    anyOdd = false;

  function set(name, channel) {
    if (!channel) {
      channels.delete(name);
      return;
    }
    if (channel.classes) {
      channels.set(name, channel);
      return;
    }
    const before = channels.get(name),
      values = before?.values?.length === count ? before.values : new Float32Array(count);
    values.set(channel.values);
    channels.set(name, { ...channel, values, range: channel.range ?? limits(values) });
  }
  const group = ["fabric"].includes(tables.kind) ? "population or port" : tables.kind === "program" ? "family" : "group";
  const classes = (name, label, of, names) => {
    if (names.length) set(name, { classes: of.data ?? of, names, label });
  };
  classes("group", group, tables.group, tables.groups);
  classes("role", "role", tables.role, tables.roles);
  for (const [name, channel] of Object.entries(tables.channels ?? {})) {
    if (channel.classes) classes(name, channel.label, channel.classes, channel.names);
    else set(name, { ...channel, values: channel.values.data });
  }
  if (tables.edges.source.data.length) {
    set("degree", { values: Float32Array.from(lists.inDegree, (n, i) => n + lists.outDegree[i]), label: "number of edges" });
    set("incoming", { values: Float32Array.from(lists.inDegree), label: "incoming edges" });
    set("outgoing", { values: Float32Array.from(lists.outDegree), label: "outgoing edges" });
  }
  if (tables.size.data.some(size => size !== tables.size.data[0]))
    set("size", { values: Float32Array.from(tables.size.data), label: "output size", unit: "values" });

  const colourName = () => (channels.has(choice.colour) ? choice.colour : channels.has("value") ? "value" : "group");
  const around = channel => channel.range[0] < 0 && channel.range[1] > 0;
  const mapOf = channel => (choice.map !== "auto" ? choice.map : around(channel) ? "PuOr" : "viridis");
  const span = channel => {
    if (!around(channel)) return channel.range;
    const wide = Math.max(-channel.range[0], channel.range[1]);
    return [-wide, wide];
  };
  /** Return the place of a value on the map, 0 … 1, and its inverse. */
  function scaleOf(channel) {
    const [low, high] = span(channel),
      wide = high - low || 1,
      root = choice.scale === "sqrt";
    if (!root) return { to: value => (value - low) / wide, from: share => low + share * wide };
    if (around(channel)) {
      const signed = x => Math.sign(x) * Math.sqrt(Math.abs(x));
      return { to: value => (signed(value / high) + 1) / 2, from: share => high * Math.sign(share - 0.5) * (2 * share - 1) ** 2 };
    }
    return { to: value => Math.sqrt(Math.max(0, (value - low) / wide)), from: share => low + share * share * wide };
  }
  /** Put colours and flags into the bytes of `looks`, and sizes into the fourth numbers of `places`. */
  function paint(nodes, theme) {
    const { looks, places } = nodes,
      channel = channels.get(colourName());
    const values = channel.values,
      [or, og, ob] = theme.odd,
      sizes = channels.get(choice.size),
      grow = sizes?.values ? scaleOf(sizes) : null;
    if (past)
      for (let i = 0; i < count; i++) {
        looks[4 * i] = past[3 * i];
        looks[4 * i + 1] = past[3 * i + 1];
        looks[4 * i + 2] = past[3 * i + 2];
      }
    else if (channel.classes) {
      const colours = channel.names.map((_, i) => classRgb(i));
      for (let i = 0; i < count; i++) {
        const [r, g, b] = colours[channel.classes[i]] ?? [128, 128, 128];
        looks[4 * i] = r;
        looks[4 * i + 1] = g;
        looks[4 * i + 2] = b;
      }
    } else {
      const table = colourTable(mapOf(channel)),
        [low, high] = span(channel),
        linear = choice.scale === "linear",
        { to } = scaleOf(channel),
        factor = 255 / (high - low || 1);
      for (let i = 0; i < count; i++) {
        const value = values[i],
          p = 4 * i;
        if ((odd[i] && (colourName() === "value" || colourName() === "change")) || value - value !== 0) {
          looks[p] = or;
          looks[p + 1] = og;
          looks[p + 2] = ob;
          continue;
        }
        const share = linear ? (value - low) * factor : to(value) * 255,
          code = 3 * (share > 255 ? 255 : share > 0 ? (share + 0.5) | 0 : 0);
        looks[p] = table[code];
        looks[p + 1] = table[code + 1];
        looks[p + 2] = table[code + 2];
      }
    }
    const keep = ~(LOOK.ghost | LOOK.dim);
    for (let i = 0; i < count; i++) {
      looks[4 * i + 3] = (looks[4 * i + 3] & keep) | (mask && !mask[i] ? LOOK.ghost : 0) | (fired && !fired[i] ? LOOK.dim : 0);
    }
    let resized = false;
    for (let i = 0; i < count; i++) {
      let size = 1;
      if (sizesPast) size = sizesPast[i];
      else if (grow) {
        const share = around(sizes) ? Math.abs(2 * grow.to(sizes.values[i]) - 1) : grow.to(sizes.values[i]);
        size = share >= 0 ? SMALL + (LARGE - SMALL) * Math.sqrt(Math.min(1, share)) : 1;
      }
      if (!nodes.visible[i]) size = 0;
      if (places[4 * i + 3] !== size) {
        places[4 * i + 3] = size;
        resized = true;
      }
    }
    return resized;
  }
  return {
    channels,
    choice,
    set,
    paint,
    get colourName() {
      return colourName();
    },
    setValues(activity) {
      fired = null;
      anyOdd = false;
      if (!activity) {
        set("value", null);
        set("change", null);
        set("fired", null);
        return;
      }
      const { values, range = [0, 1], change, changeRange, label = "activation", unit = "", scale: note = "" } = activity;
      odd.fill(0);
      if (activity.odd) odd.set(activity.odd);
      set("value", { values, range, label, unit, note });
      const own = channels.get("value").values;
      for (let i = 0; i < count; i++) if (own[i] - own[i] !== 0) odd[i] = 1;
      for (let i = 0; i < count && !anyOdd; i++) anyOdd = odd[i] === 1;
      if (change)
        set("change", {
          values: change,
          range: changeRange ?? [-(range[1] - Math.min(0, range[0])), range[1] - Math.min(0, range[0])],
          label: `change of ${label}`,
          unit,
          note,
        });
      else set("change", null);
      if (activity.fired) {
        fired = Uint8Array.from(activity.fired);
        set("fired", { classes: fired, names: ["did not compute", "computed"], label: "firing" });
      } else set("fired", null);
    },
    setMask(next) {
      mask = next ? Uint8Array.from(next) : null;
    },
    setColours(next) {
      past = next ? Uint8Array.from(next) : null;
    },
    setSizes(next) {
      sizesPast = next ? Float32Array.from(next) : null;
    },
    setLegend(next) {
      pastLegend = next;
    },
    isMasked: node => Boolean(mask && !mask[node]),
    isFired: node => !fired || fired[node] !== 0,
    isOdd: node => odd[node] !== 0,
    /** Return what a node's number or class is in words, or "" without. */
    text(node, name = colourName()) {
      const channel = channels.get(name);
      if (!channel) return "";
      if (channel.classes) return channel.names[channel.classes[node]] ?? "";
      if (name === "value" && odd[node]) return "not finite";
      return `${short(channel.values[node])}${channel.unit ? ` ${channel.unit}` : ""}`;
    },
    /** Return the legend of the colours: {title, gradient, marks: [[share, text]], entries: [[colour, text]], note}. */
    legend(theme) {
      const channel = channels.get(colourName()),
        entries = [];
      const own = pastLegend && past ? pastLegend : null;
      if (past && !own) return { title: "colours of this view", entries, note: "" };
      let result;
      if (own ? own.classes : channel.classes) {
        const names = own ? own.classes : channel.names.map((name, i) => [name, `rgb(${classRgb(i)})`]);
        const used = own ? null : new Set(channel.classes),
          shown = names.filter((_, i) => !used || used.has(i));
        entries.push(...shown.slice(0, 10).map(([name, colour]) => [colour, name]));
        const more = shown.length > 10 ? `and ${shown.length - 10} more; colours repeat after 8` : shown.length > 8 ? "colours repeat after 8" : "";
        result = { title: own?.title ?? channel.label, entries, note: own?.note ?? more };
      } else {
        const of = own ? { range: own.range, values: [] } : channel,
          { from } = scaleOf(of);
        const marks = [0, 0.5, 1].map(share => [share, short(Number(from(share).toPrecision(3)))]);
        const note = [own?.note ?? channel.note, choice.scale === "sqrt" ? "square-root scale" : "linear scale"].filter(Boolean).join("; ");
        result = {
          title: own?.title ?? channel.label,
          unit: own?.unit ?? channel.unit ?? "",
          map: own?.map ?? mapOf(of),
          gradient: gradient(own?.map ?? mapOf(of)),
          marks,
          entries,
          note,
        };
        if (anyOdd && ["value", "change"].includes(colourName())) entries.push([`rgb(${theme.odd})`, "not finite"]);
      }
      const sizes = channels.get(choice.size);
      if (sizes?.values && !sizesPast) {
        const low = around(sizes) ? 0 : sizes.range[0],
          high = around(sizes) ? span(sizes)[1] : sizes.range[1];
        result.sizes = `size: ${sizes.label}, smallest ${short(low)}, largest ${short(high)}${around(sizes) ? " (without sign)" : ""}`;
      }
      if (fired && colourName() !== "fired") entries.push(["dim", "did not compute"]);
      if (mask) entries.push(["ghost", "masked out"]);
      return result;
    },
  };
}
