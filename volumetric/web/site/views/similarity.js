// An encoder: how alike two texts are.
import { h } from "../elements.js";
import { milliseconds } from "../latest_run.js";

const PAUSE_MS = 300; // after the last letter

export async function show(stage, model, app) {
  const network = model.info, examples = network.ui?.texts ?? ["The cat sits on the mat.", "A kitten is resting on a rug."];
  const boxes = ["First text", "Second text"].map((label, i) => {
    const box = h("textarea", { id: `text-${i}`, rows: 4, placeholder: "Write or paste a text" });
    box.value = String(examples[i] ?? "");
    return { box, element: h("label", { class: "named" }, label, box) };
  });
  const fill = h("span", { class: "fill" });
  const said = h("p", { class: "similarity number", role: "status", "aria-live": "polite" });
  const size = h("p", { class: "dim" });
  const answer = h("div", { class: "card-part" }, said, h("div", { class: "bar", "aria-hidden": "true" }, fill), size);
  const say = (text, value = 0) => {
    said.textContent = text;
    fill.style.width = `${100 * Math.max(0, value)}%`;
    answer.setAttribute("aria-busy", "false");
  };
  let turn = 0, pause = 0;
  const compare = async () => {
    clearTimeout(pause);
    const mine = ++turn, begun = performance.now(), texts = boxes.map(({ box }) => box.value);
    app.clear();
    if (!texts.every(text => text.trim())) {
      size.textContent = "Write two texts.";
      app.speed("");
      return say("–");
    }
    answer.setAttribute("aria-busy", "true");
    app.speed("Comparing…");
    try {
      const vectors = await model.embed(texts);
      if (mine !== turn) return undefined;
      const value = cosine(...vectors);
      size.textContent = `The cosine of two vectors of ${vectors[0].length} numbers: 1 is the same direction, 0 nothing in common.`;
      app.speed(`${milliseconds((performance.now() - begun) / 2)} a text`);
      return say(`Similarity ${value.toFixed(3)}`, value);
    } catch (error) {
      if (mine !== turn) return undefined;
      size.textContent = "";
      app.speed("");
      say("–");
      return app.fail(error);
    }
  };
  for (const { box } of boxes) {
    box.addEventListener("input", () => {
      turn += 1; // what is being computed is of an earlier text
      answer.setAttribute("aria-busy", "true");
      clearTimeout(pause);
      pause = setTimeout(compare, PAUSE_MS);
    });
  }
  const swap = () => {
    const [first, second] = boxes.map(({ box }) => box.value);
    boxes[0].box.value = second;
    boxes[1].box.value = first;
    return compare();
  };
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Texts" }, h("h2", {}, "Two texts"), boxes.map(one => one.element),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: compare }, "Compare"), h("button", { type: "button", onclick: swap }, "Swap"))),
    h("section", { class: "card", "aria-label": "Similarity" }, h("h2", {}, "How alike they are"), answer));
  await compare();
}

/** The cosine of the angle between two vectors. */
export function cosine(a, b) {
  let dot = 0, left = 0, right = 0;
  for (let i = 0; i < a.length; i++) { dot += a[i] * b[i]; left += a[i] * a[i]; right += b[i] * b[i]; }
  return dot / (Math.sqrt(left * right) || 1);
}
