// The samples that a network was evolved for: what it gives for each, and how many are right.
import { areClasses, meaning, namesOf } from "./answers.js";
import { h, short } from "./elements.js";
import { inputsOf, listOf, widthOf } from "./fields.js";

const MOST_ROWS = 32;

/** Return the samples of an export that fit its inputs: [{x, y}]. */
export function samplesOf(network, fields) {
  const whole = one => one?.x?.length === fields.length && [...one.x, one.y].every(Number.isFinite);
  return Object.keys(network.outputs).length === 1 ? listOf(network.ui?.samples).filter(whole) : [];
}

/** Return {element, check}: a card whose table `check()` fills; element is null without samples. */
export function sampleCheck(model, fields, samples) {
  if (!samples.length) return { element: null, check: async () => {} };
  const network = model.info, [port] = Object.keys(network.outputs), width = widthOf(network.outputs[port]);
  const judge = judgeOf(areClasses(network, port) || width > 1, samples.map(sample => sample.y), width);
  const heads = [...fields.map(field => field.name), "expected", ...namesOf(network, port), ...(judge ? [""] : [])];
  const body = h("tbody"), total = h("p", { class: "total" }, "Computing…");
  const element = h("section", { class: "card", "aria-label": "Samples" }, h("h2", {}, "Samples"), total,
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Samples and what comes out" },
      h("table", { class: "samples" }, h("thead", {}, h("tr", {}, heads.map(name => h("th", { scope: "col" }, name || h("span", { class: "unseen" }, "right or wrong"))))), body)));
  const check = async () => {
    const outputs = (await model.run(inputsOf(network, fields, samples.map(sample => sample.x))))[port];
    const rows = samples.map(({ x, y }, r) => {
      const values = meaning(network, port, outputs.subarray(r * width, (r + 1) * width));
      return { x, y, values, right: judge?.(values, y) };
    });
    const right = rows.filter(row => row.right).length;
    if (judge) {
      total.textContent = `${right} of ${rows.length} right`;
      rows.sort((a, b) => a.right - b.right); // wrong ones first
    } else if (width > 1) {
      total.remove();
    } else {
      total.textContent = `Largest difference ${short(Math.max(...rows.map(({ values, y }) => Math.abs(values[0] - y))))}`;
    }
    body.replaceChildren(...rows.slice(0, MOST_ROWS).map(({ x, y, values, right: good }) => h("tr", {},
      [...x, y, ...values].map(value => h("td", { class: "number" }, short(value))),
      judge ? h("td", { class: good ? "right" : "wrong" }, good ? "✓ right" : "✗ wrong") : null)));
    if (rows.length > MOST_ROWS) element.append(h("p", { class: "note" }, `${MOST_ROWS} of ${rows.length} samples are shown${judge ? ", wrong ones first" : ""}.`));
  };
  return { element, check };
}

/** What decides whether a sample is right: its class, or the nearer of two numbers; null for other numbers. */
function judgeOf(classes, targets, width) {
  if (classes) {
    return targets.every(y => Number.isInteger(y) && y >= 0 && y < width) ? (values, y) => values.indexOf(Math.max(...values)) === y : null;
  }
  const two = [...new Set(targets)].sort((a, b) => a - b), middle = (two[0] + two[1]) / 2;
  return two.length === 2 ? ([value], y) => (value > middle) === (y > middle) : null;
}
