// A run of evolution: species, fitness, sizes, the best genome, fronts and the genealogy, all at one generation.
import { frontChart } from "../charts/front_chart.js";
import { lineChart } from "../charts/line_chart.js";
import { streamGraph } from "../charts/stream_graph.js";
import { button, h, short } from "../elements.js";
import { lane } from "../evolution/ancestry.js";
import { mountChampion } from "../evolution/champion.js";
import { mountLineage } from "../evolution/lineage.js";
import { speciesColour } from "../evolution/species_colours.js";
import { makeStore } from "../evolution/store.js";
import { mountTimeline } from "../evolution/timeline.js";
import { observable } from "../observable.js";

export async function mount(element, view, app) {
  const store = await makeStore(view.data, app.doc);
  const asked = Number(app.state.get("gen", NaN));
  const generation = observable(Number.isFinite(asked) ? asked : (store.rows.at(-1)?.generation ?? 0)),
    species = observable(null);
  const panels = new Map(),
    board = h("div", { class: "evolution-board" });
  const timeline = mountTimeline(store, app, generation);
  const notes = h("ul", { class: "evolution-notes dim" }, ...view.data.notes.map(text => h("li", {}, text)));
  const root = h("div", { class: "evolution" }, h("div", { class: "evolution-scroll" }, board, notes), timeline.element);
  element.append(root);

  /** Add a panel with a heading, tools, and a button that shows it alone. */
  function panel(name, title, content, tools = []) {
    const alone = button("⤢", `Show only ${title}`, () => show(root.dataset.only === name ? null : name), { class: "plain" });
    const section = h(
      "section",
      { class: `panel evolution-${name}`, "data-panel": name, "aria-label": title },
      h("div", { class: "panel-head" }, h("h2", {}, title), h("div", { class: "panel-tools" }, ...tools, alone)),
      content,
    );
    panels.set(name, { section, alone, title });
    board.append(section);
    return section;
  }
  function show(name) {
    if (name && panels.has(name)) root.dataset.only = name;
    else delete root.dataset.only;
    for (const [key, { section, alone }] of panels) {
      section.hidden = Boolean(root.dataset.only) && key !== root.dataset.only;
      alone.setAttribute("aria-pressed", key === root.dataset.only);
    }
    notes.hidden = Boolean(root.dataset.only);
    app.state.set("panel", root.dataset.only ?? "");
  }

  let asking = false;
  let pareto = Boolean(view.data.fronts) || store.rows.some(row => row.front);
  const parts = [timeline];
  const stream = streamGraph([], {
    title: "Species",
    xLabel: "generation",
    tooltip: app.tooltip,
    announce: app.announce,
    order: lane,
    onPick: id => species.set(id),
    name: id => id,
    colour: speciesColour,
    describe: describeSpecies,
  });
  const front = frontChart([], {
    title: "Front",
    tooltip: app.tooltip,
    announce: app.announce,
    onPick: id => {
      if (!lineage.choose(id)) app.announce("this genome is not in the genealogy");
    },
  });
  const champion = mountChampion(store, app);
  const lineage = mountLineage(store, app, {});
  const fitness = lineChart([], { xLabel: "generation", yLabel: "fitness", height: 230, tooltip: app.tooltip, onPick: pickGeneration });
  const sizes = lineChart([], { xLabel: "generation", yLabel: "sizes", height: 230, tooltip: app.tooltip, onPick: pickGeneration });
  const scale = h(
    "select",
    { "aria-label": "Scale of fitness", onchange: () => setScale() },
    ...["linear", "log"].map(value => h("option", { value }, value)),
  );
  const axes = [0, 1].map(side =>
    h("select", {
      "aria-label": side ? "Objective of the height" : "Objective of the width",
      onchange: () => front.setAxes(axes.map(one => Number(one.value))),
    }),
  );

  function describeSpecies(id, place) {
    const row = store.rows[place],
      at = row.species.ids.indexOf(id),
      founded = store.founded.get(id),
      population = row.species.sizes.reduce((a, b) => a + b, 0);
    const best = row.species.best[at],
      ended = store.ended.get(id);
    return [
      id < 0 ? "all smaller species" : `species ${id}`,
      `generation ${row.generation}`,
      `${short(row.species.sizes[at])} genomes, ${((100 * row.species.sizes[at]) / population).toFixed(0)} %`,
      Number.isFinite(best) ? `best fitness ${short(best)}` : ended !== undefined ? `best fitness in its life ${short(ended)}` : null,
      id < 0 ? null : `age ${row.generation - founded}, since generation ${founded}`,
    ]
      .filter(Boolean)
      .join("\n");
  }
  function pickGeneration(value) {
    generation.set(store.rows[store.place(Math.round(value))]?.generation ?? 0);
  }
  let fitnessLines = [];
  function setScale() {
    const low = store.rows.some(row => [row.best, row.mean, row.worst].some(value => value <= 0));
    fitness.update(fitnessLines, { log: scale.value === "log" ? (low ? "symmetric" : true) : false });
  }
  const column = name => store.rows.map(row => row[name]);
  const line = (x, name, key, more) => ({ name, x, y: column(key), ...more });

  function refresh() {
    if (!pareto && store.rows.some(row => row.front)) {
      // a live run of which nothing was known
      pareto = true;
      panels.get("species").section.remove();
      panels.delete("species");
      board.prepend(addFront());
    }
    const x = column("generation"),
      stdev = column("stdev"),
      mean = column("mean");
    const [best, meanColour, links, worst] = ["evolution-best", "evolution-mean", "evolution-links", "dim"].map(colour =>
      getComputedStyle(document.documentElement).getPropertyValue(`--${colour}`).trim(),
    );
    const some = series => series.filter(one => one.y.some(Number.isFinite));
    fitnessLines = some([
        line(x, pareto ? "best of objective 1" : "best", "best", { colour: best }),
        line(x, "mean ± standard deviation", "mean", {
          colour: meanColour,
          low: mean.map((value, i) => value - stdev[i]),
          high: mean.map((value, i) => value + stdev[i]),
        }),
        line(x, "worst", "worst", { colour: worst, dashed: true }),
    ]);
    fitness.update(fitnessLines);
    sizes.update(
      some([
        line(x, `${store.sizeNames[0]}, best`, "hidden", { colour: best }),
        line(x, `${store.sizeNames[0]}, mean`, "meanHidden", { colour: best, dashed: true }),
        line(x, `${store.sizeNames[1]}, best`, "connections", { colour: links }),
        line(x, `${store.sizeNames[1]}, mean`, "meanConnections", { colour: links, dashed: true }),
      ]),
    );
    stream.update(
      store.rows
        .filter(row => row.species)
        .map(row => ({ x: row.generation, sizes: new Map(Array.from(row.species.ids, (id, i) => [id, row.species.sizes[i]])) })),
    );
    if (pareto) front.update(store.rows.map(row => ({ label: row.generation, ids: row.front?.genomes ?? [], points: pointsOf(row.front) })));
    lineage.update();
    timeline.update();
    setGeneration();
  }
  function setGeneration() {
    const at = generation.value,
      place = store.place(at);
    app.state.set("gen", at === store.rows.at(-1)?.generation ? "" : at);
    for (const chart of [stream, fitness, sizes]) chart.setMarker(store.rows.length ? at : null);
    champion.show(store.championAt(at));
    front.show(place);
    lineage.setGeneration(at);
    root.dataset.generation = at;
    root.dataset.rows = store.rows.length;
  }

  function addFront() {
    const width = store.rows.find(row => row.front)?.front.width ?? 2;
    axes.forEach((select, side) => {
      select.append(
        ...Array.from({ length: width }, (_, i) => h("option", { value: i, selected: i === Math.min(side, width - 1) }, `objective ${i + 1}`)),
      );
      select.hidden = width < 3;
    });
    front.setAxes([0, Math.min(1, width - 1)]);
    return panel("front", "Pareto front", front.element, axes);
  }
  if (pareto) addFront();
  else panel("species", "Species", stream.element);
  const structures = store.champions.length > 0 || store.running;
  panel("champion", "Best genome", structures ? champion.element : h("p", { class: "dim empty" }, view.data.whyNoChampions));
  panel("fitness", "Fitness", fitness.element, [scale]);
  panel("sizes", "Sizes", sizes.element);
  const recorded = view.data.births || store.running;
  panel(
    "genealogy",
    "Genealogy",
    recorded ? lineage.element : h("p", { class: "dim empty" }, view.data.whyNoGenealogy),
    recorded ? [lineage.bar] : [],
  );
  if (recorded) {
    lineage.element.append(
      h(
        "p",
        { class: "dim lineage-hint" },
        "Thick line: fitter parents. Dots: mutations, diamonds: crossovers, hollow: clones. " +
          "Click a genome; then the wheel zooms, drag pans, ← goes to its parent, p to the other, → to its best child.",
      ),
    );
  }
  show(app.state.get("panel"));
  const offs = [
    generation.subscribe(setGeneration),
    app.dark.subscribe(() => refresh()),
    species.subscribe(id => {
      stream.highlight(id);
      lineage.highlight(id);
    }),
  ];
  if (app.live) offs.push(app.live.on(view.name, receive));
  if (app.live && view.data.running) void catchUp();
  refresh();
  const wanted = Number(app.state.get("genome", NaN));
  if (Number.isFinite(wanted)) lineage.choose(wanted);

  /** Ask for the generations that came before the page listened, or that it missed. */
  async function catchUp() {
    if (asking) return;
    asking = true;
    try {
      for (;;) {
        const answer = await app.live.act(view.name, { do: "rows", from: store.total });
        store.running = answer.running;
        const news = answer.from === store.total && store.append(answer.rows);
        refresh();
        if (!news || store.total >= answer.total) break;
      }
    } catch (error) {
      app.notify(error.message);
    } finally {
      asking = false;
    }
  }
  function receive(message) {
    store.running = message.running;
    if (message.failure) app.notify(message.failure);
    if (message.reset) store.clear();
    const over = store.total - message.from;
    if (over < 0) {
      void catchUp();
      return;
    }
    store.append(message.rows.slice(over));
    refresh();
  }
  return {
    store,
    generation,
    species,
    lineage,
    key(event) {
      if (event.key === "Escape" && root.dataset.only) {
        show(null);
        return true;
      }
      return timeline.key(event);
    },
    exports: () => ({
      svg:
        { front: front.svg, genealogy: lineage.svg, champion: champion.svg, fitness: fitness.svg, sizes: sizes.svg }[root.dataset.only] ??
        (pareto ? front.svg : stream.svg),
      canvas: lineage.canvas,
    }),
    destroy() {
      for (const off of offs) off();
      for (const part of [...parts, stream, front, champion, lineage, fitness, sizes]) part.destroy();
      root.remove();
    },
  };
}

function pointsOf(front) {
  if (!front) return [];
  return Array.from({ length: front.genomes.length }, (_, i) => Array.from(front.points.subarray(i * front.width, (i + 1) * front.width)));
}
