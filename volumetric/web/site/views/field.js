// Two numbers in: what comes out over the whole plane, as a field of colour with the samples on it.
import { answers } from "../answers.js";
import { h } from "../elements.js";
import { fieldsOf, inputsOf, sliders, widthOf } from "../fields.js";
import { genomePicture } from "../genome_picture.js";
import { latestRun, milliseconds } from "../latest_run.js";
import { plane, POINTS } from "../plane.js";
import { sampleCheck, samplesOf } from "../sample_check.js";

export async function show(stage, model, app) {
  const network = model.info, fields = fieldsOf(network), [x, y] = fields;
  if (fields.length !== 2) throw new Error(`A plane has two inputs; this network has ${fields.length}.`);
  const answer = answers(network);
  const samples = samplesOf(network, fields), verified = sampleCheck(model, fields, samples), picture = genomePicture(network.ui?.genome);
  const near = pairs => inputsOf(network, fields, pairs);
  const controls = sliders(fields, at => { ask(near([at])); field.redraw(); });
  const field = plane(model, fields, {
    samples: () => samples, cross: () => controls.values, point: controls.set, step: controls.set, keys: "Arrow keys move the point.",
  });
  const ask = latestRun(model, (outputs, time) => {
    app.clear();
    answer.show(Object.fromEntries(Object.entries(outputs).map(([name, all]) => [name, all.subarray(0, widthOf(network.outputs[name]))])));
    app.speed(`${milliseconds(time)} a call`);
  }, app.fail);
  const caption = h("p", { class: "note" }, `Across: ${x.name}. Up: ${y.name}. Point, drag, or use the arrow keys.`), busy = h("p", { class: "busy dim" }, "Computing the plane…");
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Plane" }, h("div", { class: "plane" }, field.canvas, busy), caption, controls.element),
    h("div", { class: "column" },
      h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "Outputs"), answer.element),
      verified.element,
      picture ? h("section", { class: "card", "aria-label": "Genome" }, h("h2", {}, "Genome"), picture) : null));

  await ask(near([controls.values]));
  fill();

  /** Compute samples and plane; the page can be used meanwhile. */
  async function fill() {
    try {
      await verified.check();
      const begun = performance.now();
      await field.fill();
      app.speed(`${POINTS} points in ${milliseconds(performance.now() - begun)}`);
    } catch (error) {
      app.fail(error);
      field.redraw();
    }
    busy.remove();
  }
}
