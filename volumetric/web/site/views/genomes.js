// Several genomes side by side: what each makes of the same inputs, beside its picture.
import { h, short } from "../elements.js";
import { fieldsOf, inputsOf, listOf, sliders, widthOf } from "../fields.js";
import { genomePicture } from "../genome_picture.js";
import { latestRun, milliseconds } from "../latest_run.js";

export async function show(stage, model, app) {
  const network = model.info, fields = fieldsOf(network), genomes = Object.keys(network.outputs), pictures = listOf(network.ui?.genomes);
  const outputs = Array.from({ length: widthOf(network.outputs[genomes[0]]) }, (_, o) => `out ${o}`);
  const rows = genomes.map((name, g) => {
    const cells = outputs.map(() => h("td", { class: "number" }));
    return { name, cells, element: h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "thumb" }, genomePicture(pictures[g])), cells) };
  });
  const ask = latestRun(model, (all, time) => {
    app.clear();
    for (const { name, cells } of rows) cells.forEach((cell, o) => { cell.textContent = short(all[name][o]); });
    app.speed(`${milliseconds(time)} for ${genomes.length} genomes`);
  }, app.fail);
  const controls = sliders(fields, values => ask(inputsOf(network, fields, [values])));
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Inputs" }, h("h2", {}, "Inputs"), controls.element),
    h("section", { class: "card", "aria-label": "Genomes" }, h("h2", {}, `${genomes.length} genomes`),
      h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Genomes and their outputs" },
        h("table", {}, h("thead", {}, h("tr", {}, ["Genome", "Picture", ...outputs].map(name => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.map(row => row.element))))));
  await ask(inputsOf(network, fields, [controls.values]));
}
