// Two numbers in: what comes out over the whole plane, as a field of colour with the samples on it.
import { answers, meaning, namesOf } from "../answers.js";
import { h, short } from "../elements.js";
import { fieldsOf, inputsOf, listOf, sliders, widthOf } from "../fields.js";
import { latestRun, milliseconds } from "../latest_run.js";
import { plane, POINTS } from "../plane.js";

const MOST_LISTED = 32;

export async function show(stage, model, app) {
  const network = model.info, fields = fieldsOf(network), [x, y] = fields, port = Object.keys(network.outputs)[0];
  if (fields.length !== 2) throw new Error(`A plane has two inputs; this network has ${fields.length}.`);
  const width = widthOf(network.outputs[port]), names = namesOf(network, port);
  const answer = answers(network);
  const samples = listOf(network.ui?.samples).filter(one => one?.x?.length === 2), listed = samples.length > 0 && samples.length <= MOST_LISTED;
  const near = pairs => inputsOf(network, fields, pairs);
  const controls = sliders(fields, at => { ask(near([at])); field.redraw(); });
  const field = plane(model, fields, {
    samples: () => samples, cross: () => controls.values, point: controls.set, step: controls.set,
  });
  const ask = latestRun(model, (outputs, time) => {
    app.clear();
    answer.show(Object.fromEntries(Object.entries(outputs).map(([name, all]) => [name, all.subarray(0, widthOf(network.outputs[name]))])));
    app.speed(`${milliseconds(time)} a call`);
  }, app.fail);
  const expected = h("tbody");
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Plane" }, h("div", { class: "plane" }, field.canvas),
      h("p", { class: "note" }, `Right: ${x.name}, up: ${y.name}. Point, drag, or use the arrow keys.`), controls.element),
    h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "Outputs"), answer.element,
      listed ? h("table", { class: "samples" },
        h("thead", {}, h("tr", {}, [x.name, y.name, "expected", ...names].map(name => h("th", { scope: "col" }, name)))), expected) : null));

  await ask(near([controls.values]));
  fill();

  /** Compute samples and plane; the page can be used meanwhile. */
  async function fill() {
    try {
      if (listed) {
        const outputs = (await model.run(near(samples.map(sample => sample.x))))[port];
        expected.replaceChildren(...samples.map((sample, r) => h("tr", {}, [...sample.x, sample.y, ...meaning(network, port, outputs.subarray(r * width, (r + 1) * width))]
          .map(value => h("td", { class: "number" }, short(value))))));
      }
      const begun = performance.now();
      await field.fill();
      app.speed(`${POINTS} points in ${milliseconds(performance.now() - begun)}`);
    } catch (error) {
      app.fail(error);
      field.redraw();
    }
  }
}
