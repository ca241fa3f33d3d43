// A population that evolves: fitness, species, the champion's genes, and what it does.
import { drawn, series } from "../canvas.js";
import { begin, fallen, forceOf, next, OBSERVED, STEP_MS } from "../cartpole_physics.js";
import { drawCart } from "../cartpole_scene.js";
import { curves } from "../curves.js";
import { h, short } from "../elements.js";
import { genomePicture } from "../genome_picture.js";
import { milliseconds } from "../latest_run.js";
import { activator, genomePlaces } from "../neat/activate.js";
import { saveFile } from "../save_file.js";

const NAMES = { xor: ["a", "b"], cartpole: OBSERVED };
const TITLES = { xor: "XOR of two bits", cartpole: "Balance a pole on a cart" };
const MOST_GENERATIONS = 120; // of the strip of species

export async function show(stage, model, app) {
  const about = model.info.population, history = [];
  let population = null, champion = null, force = 0, running = false, busy = Promise.resolve(), state = begin(), steps = 0;
  const problem = h("select", { "aria-label": "Problem" }, Object.entries(TITLES).map(([name, title]) => h("option", { value: name, selected: name === about.evolution.problem }, title)));
  const seed = h("input", { type: "number", min: 0, step: 1, value: 1, "aria-label": "Seed" });
  const chart = curves(["best fitness", "mean fitness"], "Fitness over generations");
  const kinds = h("canvas", { class: "strip", role: "img", "aria-label": "Species over generations" });
  const species = drawn(kinds, (context, w, hgt, colour) => drawSpecies(context, w, hgt, colour, history));
  const picture = h("div", {}), facts = h("p", { class: "dim number" }), said = h("p", { class: "note", role: "status" });
  const scene = h("canvas", { class: "world", role: "img", "aria-label": "The champion's pole on its cart" });
  const redraw = drawn(scene, (context, w, hgt, colour) => { if (champion) drawCart(context, w, hgt, colour, state, force); });
  const table = h("tbody"), world = h("div", {});

  const renew = async () => {
    stop();
    population = await model.population({ problem: problem.value, seed: seed.valueAsNumber || 0 });
    history.length = 0;
    champion = null;
    chart.clear();
    picture.replaceChildren();
    facts.textContent = "";
    world.replaceChildren(problem.value === "cartpole" ? scene : h("table", { class: "now" }, h("thead", {}, h("tr", {}, ["a", "b", "expected", "champion"].map(name => h("th", { scope: "col" }, name)))), table));
    species();
    said.textContent = `${population.genomes.length} genomes, none of them tested yet.`;
  };
  const step = () => (busy = busy.then(async () => {
    const begun = performance.now(), summary = await population.step();
    app.clear();
    app.speed(`${milliseconds(performance.now() - begun)} a generation of ${population.genomes.length} genomes`);
    chart.add([summary.best, summary.mean]);
    history.push(summary.species);
    species();
    showChampion(summary);
  }).catch(error => { stop(); app.fail(error); }));
  const showChampion = ({ generation, champion: best, solved, species: groups, nodes }) => {
    const { inputs, outputs, goal, name } = population.problem;
    champion = activator(best.genome, population.interface);
    picture.replaceChildren(genomePicture(genomePlaces(best.genome, inputs, outputs, NAMES[name])));
    facts.textContent = `fitness ${short(best.fitness)} of generation ${best.generation}, ${best.genome.nodes.length} nodes of its own`;
    if (solved) stop(); // before the sentence, which is then read out
    said.textContent = `Generation ${generation}: ${groups.length} species, ${short(nodes)} nodes a genome${solved ? `. Solved: ${goal} was the goal.` : ""}`;
    if (name === "xor") {
      table.replaceChildren(...population.problem.rows.map(([a, b]) => {
        champion.reset();
        return h("tr", {}, [a, b, a ^ b, short(champion.act([a, b])[0])].map(value => h("td", { class: "number" }, value)));
      }));
    }
  };
  const run = h("button", { type: "button", class: "main", onclick: () => (running ? stop() : start()) }, "Evolve");
  const start = async () => {
    running = true;
    run.textContent = "Pause";
    said.setAttribute("aria-live", "off");
    while (running && !population.solved) await step();
    stop();
  };
  const stop = () => { running = false; run.textContent = "Evolve"; said.setAttribute("aria-live", "polite"); };
  const save = () => { try { saveFile("champion.json", population.championJson(), "application/json"); } catch (error) { app.fail(error); } };
  const again = () => (busy = busy.then(renew).catch(app.fail));
  problem.addEventListener("change", again);
  seed.addEventListener("change", again);
  stage.replaceChildren(
    h("section", { class: "card wide", "aria-label": "Evolution" }, h("h2", {}, "Evolution"),
      h("div", { class: "buttons" }, run, h("button", { type: "button", onclick: step }, "One generation"), h("button", { type: "button", onclick: again }, "Start again"),
        h("label", { class: "inline" }, "Problem", problem), h("label", { class: "inline" }, "Seed", seed)),
      said, chart.element, h("h2", {}, "Species"), kinds),
    h("section", { class: "card", "aria-label": "Champion" }, h("h2", {}, "Champion"), picture, facts, h("div", { class: "buttons" }, h("button", { type: "button", onclick: save }, "Save champion.json"))),
    h("section", { class: "card", "aria-label": "What it does" }, h("h2", {}, "What it does"), world));
  await renew();
  const move = () => {
    if (champion && problem.value === "cartpole" && !document.hidden) {
      force = forceOf(champion.act(Float32Array.from(state)));
      state = next(state, force);
      if (fallen(state) || ++steps > 500) { state = begin(); steps = 0; champion.reset(); }
      redraw();
    }
    setTimeout(move, STEP_MS);
  };
  if (!app.reducedMotion()) move();
}

/** Each generation as a column, with a part for each species. */
function drawSpecies(context, w, hgt, colour, history) {
  const shown = history.slice(-MOST_GENERATIONS), wide = w / Math.max(40, shown.length);
  shown.forEach((groups, g) => {
    const total = groups.reduce((sum, { size }) => sum + size, 0);
    let y = 0;
    for (const { id, size } of groups) {
      const tall = size / total * hgt;
      context.fillStyle = colour(series(id));
      context.fillRect(g * wide, y, Math.max(1, wide - .5), Math.max(.5, tall - .5));
      y += tall;
    }
  });
}
