// What the user chooses about a scene: colours, sizes, slices, what is drawn, and where the eye is.
import { button, h } from "../elements.js";
import { MAPS } from "./palette.js";
import { mountLegend } from "./legend.js";
import { mountSearch } from "./search.js";

const AXES = ["x", "y", "z"];
const options = (select, list, chosen) => {
  const key = JSON.stringify([list, chosen]);
  if (select.dataset.key === key) return;
  select.dataset.key = key;
  select.replaceChildren(...list.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  select.value = chosen;
};

/** Mount the menu on the stage of a scene; returns {key(event), update(), destroy()}. */
export function mountSceneMenu(stage, { renderer, tables, app }) {
  const choose = (name, label) => {
    const select = h("select", {
      "aria-label": label,
      name,
      onchange() {
        renderer.setChoice({ [name]: select.value });
        app.state.set(`scene-${name}`, select.value);
      },
    });
    return select;
  };
  const colour = choose("colour", "Colour by"),
    map = choose("map", "Colour map"),
    scale = choose("scale", "Scale of colours"),
    size = choose("size", "Size by"),
    edges = choose("edges", "Colour of edges by");
  const line = (label, ...children) => h("label", { class: "scene-line" }, h("span", {}, label), ...children);
  const check = (name, label) => {
    const box = h("input", { type: "checkbox", checked: renderer.shown[name], onchange: () => renderer.show({ [name]: box.checked }) });
    return h("label", { class: "scene-check" }, box, label);
  };

  const bulk = h("input", {
    type: "range",
    min: 0.3,
    max: 2,
    step: 0.05,
    value: 1,
    name: "bulk",
    oninput: () => renderer.setNodeScale(Number(bulk.value)),
  });

  const low = [...tables.low],
    high = [...tables.high],
    slices = [];
  const cut = () => renderer.setSlices(low, high);
  for (const [k, axis] of AXES.entries()) {
    const from = tables.low[k],
      to = tables.high[k];
    if (!(to > from)) continue;
    const text = h("output", { class: "number" }),
      step = Number.isInteger(from) && Number.isInteger(to) ? 1 : (to - from) / 100;
    const show = () => {
      text.value = `${Number(low[k].toPrecision(4))} … ${Number(high[k].toPrecision(4))}`;
    };
    const slider = (label, values, bound) =>
      h("input", {
        type: "range",
        min: from,
        max: to,
        step,
        value: values[k],
        "aria-label": `${label} ${axis}`,
        "data-axis": axis,
        oninput(event) {
          values[k] = bound(Number(event.target.value));
          event.target.value = values[k];
          show();
          cut();
          app.announce(`${axis} from ${low[k]} to ${high[k]}`);
        },
      });
    const first = slider("Hide before", low, value => Math.min(value, high[k])),
      last = slider("Hide after", high, value => Math.max(value, low[k]));
    show();
    slices.push({
      reset() {
        low[k] = from;
        high[k] = to;
        first.value = from;
        last.value = to;
        show();
      },
      element: h("div", { class: "scene-slice" }, h("span", {}, axis), first, last, text),
    });
  }
  const ways = renderer.ways,
    way = h("select", { "aria-label": "Pull apart by" }),
    apart = h("input", { type: "range", min: 0, max: 4, step: 0.05, value: 0, "aria-label": "Pull layers apart", name: "explode" });
  options(
    way,
    ways.map(one => [one.name, one.label]),
    ways[0]?.name,
  );
  const pull = () =>
    renderer.explode(
      ways.find(one => one.name === way.value),
      Number(apart.value),
    );
  way.addEventListener("change", pull);
  apart.addEventListener("input", pull);
  const panel = h(
    "section",
    { class: "scene-panel", "aria-label": "Look of the scene", hidden: true },
    line("Map", map),
    line("Scale", scale),
    line("Size by", size),
    line("Node size", bulk),
    line("Edges by", edges),
    ways.length ? h("fieldset", {}, h("legend", {}, "Pull apart"), line("by", way), apart) : null,
    slices.length
      ? h(
          "fieldset",
          {},
          h("legend", {}, "Slices"),
          ...slices.map(one => one.element),
          h(
            "button",
            {
              type: "button",
              class: "plain",
              onclick() {
                for (const one of slices) one.reset();
                renderer.setSlices(null, null);
              },
            },
            "Show all",
          ),
        )
      : null,
    h("div", { class: "scene-checks" }, check("labels", "Names"), check("floor", "Grid"), check("edges", "Edges")),
  );
  const opener = button("☰", "Look of the scene: map, sizes, slices", () => open(panel.hidden), { "aria-expanded": "false" });
  function open(on) {
    panel.hidden = !on;
    opener.setAttribute("aria-expanded", String(on));
    opener.setAttribute("aria-pressed", String(on));
    renderer.cover(on ? 276 : 0);
  }
  const flat = button("⬚", "Without perspective (O)", () => setFlat(!renderer.cameras.flat), { "aria-pressed": "false" });
  function setFlat(on) {
    renderer.cameras.setFlat(on);
    flat.setAttribute("aria-pressed", String(on));
    renderer.draw();
  }
  const search = mountSearch({ renderer, tables, app });
  const bar = h(
    "div",
    { class: "scene-bar", role: "toolbar", "aria-label": "Scene" },
    search.element,
    h(
      "div",
      { class: "scene-buttons" },
      button("⤢", "Show all (F)", () => renderer.fit()),
      button("▣", "From the front (1)", () => renderer.view("front")),
      button("⬒", "From above (2)", () => renderer.view("top")),
      button("◨", "From the side (3)", () => renderer.view("side")),
      flat,
      opener,
    ),
  );
  const legend = mountLegend({ renderer, colour });
  const overlay = [bar, panel, legend.element];
  stage.append(...overlay);

  function update() {
    const { channels, choice, colourName } = renderer.palette;
    const list = [...channels];
    options(
      colour,
      list.map(([name, channel]) => [name, channel.label]),
      colourName,
    );
    options(map, [["auto", "auto"], ...MAPS.map(name => [name, name])], choice.map);
    options(
      scale,
      [
        ["linear", "linear"],
        ["sqrt", "square root"],
      ],
      choice.scale,
    );
    options(
      size,
      [["same", "all alike"], ...list.filter(([, channel]) => channel.values).map(([name, channel]) => [name, channel.label])],
      channels.has(choice.size) ? choice.size : "same",
    );
    options(edges, renderer.edgeModes(), renderer.edgeMode());
    const numeric = Boolean(channels.get(colourName)?.values);
    map.disabled = scale.disabled = !numeric;
    legend.update();
  }
  const saved = Object.fromEntries(
    ["colour", "map", "scale", "size", "edges"].map(name => [name, app.state.get(`scene-${name}`)]).filter(([, value]) => value),
  );
  if (Object.keys(saved).length) renderer.setChoice(saved);
  const ended = renderer.onLegend(update);
  update();
  return {
    update,
    key(event) {
      const keys = {
        f: () => renderer.fit(),
        F: () => renderer.fit(),
        0: () => renderer.view("corner"),
        1: () => renderer.view("front"),
        2: () => renderer.view("top"),
        3: () => renderer.view("side"),
        o: () => setFlat(!renderer.cameras.flat),
        "+": () => renderer.cameras.zoom(1.2),
        "=": () => renderer.cameras.zoom(1.2),
        "-": () => renderer.cameras.zoom(1 / 1.2),
        "/": () => search.focus(),
      };
      if (event.key === "Escape" && !panel.hidden) {
        open(false);
        opener.focus();
        return true;
      }
      if (!keys[event.key]) return false;
      keys[event.key]();
      return true;
    },
    destroy() {
      ended();
      for (const one of overlay) one.remove();
    },
  };
}
