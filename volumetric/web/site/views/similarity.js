// An encoder: how alike two texts are.
import { h } from "../elements.js";
import { milliseconds } from "../latest_run.js";

export async function show(stage, model, app) {
  const network = model.info, examples = network.ui?.texts ?? ["The cat sits on the mat.", "A kitten is resting on a rug."];
  const boxes = [0, 1].map(i => h("textarea", { id: `text-${i}`, rows: 4, "aria-label": i ? "Second text" : "First text" }));
  boxes.forEach((box, i) => { box.value = String(examples[i] ?? ""); });
  const meter = h("meter", { min: 0, max: 1, low: .3, high: .7, optimum: 1, "aria-label": "Similarity" });
  const said = h("p", { class: "similarity number", role: "status", "aria-live": "polite" });
  const size = h("p", { class: "dim" });
  let turn = 0;
  const compare = async () => {
    const mine = ++turn, begun = performance.now();
    if (boxes.some(box => !box.value.trim())) { said.textContent = "Write two texts."; return; }
    try {
      const vectors = [];
      for (const box of boxes) vectors.push(await model.embed(box.value));
      if (mine !== turn) return;
      const value = cosine(...vectors);
      app.clear();
      meter.value = Math.max(0, value);
      said.textContent = `Similarity ${value.toFixed(3)}`;
      size.textContent = `The cosine of two vectors of ${vectors[0].length} numbers: 1 is the same direction, 0 none in common.`;
      app.speed(`${milliseconds((performance.now() - begun) / 2)} a text`);
    } catch (error) {
      app.fail(error);
    }
  };
  let pause = 0;
  for (const box of boxes) box.addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(compare, 300); });
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Texts" }, h("h2", {}, "Two texts"), boxes),
    h("section", { class: "card", "aria-label": "Similarity" }, h("h2", {}, "Similarity"), said, meter, size,
      h("div", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: compare }, "Compare"))));
  await compare();
}

/** The cosine of the angle between two vectors. */
export function cosine(a, b) {
  let dot = 0, left = 0, right = 0;
  for (let i = 0; i < a.length; i++) { dot += a[i] * b[i]; left += a[i] * a[i]; right += b[i] * b[i]; }
  return dot / (Math.sqrt(left * right) || 1);
}
