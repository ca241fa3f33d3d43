// The level of one number: the products and functions that it comes from, step by step, with every operand.
import { h, short } from "../elements.js";
import { matrixPlace } from "./levels.js";

/** Return a short text about where an operand comes from; parameters and states of layer `own` without its coordinate. */
function originText(of, own = "") {
  const name = of.name.startsWith(`${own}/`) ? of.name.slice(own.length + 1) : of.name, index = of.index?.length ? `[${of.index.join(", ")}]` : "";
  const late = of.delay ? `, ${of.delay} ${of.delay === 1 ? "tick" : "ticks"} ago` : "";
  switch (of.kind) {
    case "parameter": return `${name}${index}`;
    case "layer": return `${name}${index}${late}`;
    case "state": return `${name}${index} before`;
    case "input": return `${name}${index}`;
    default: return "constant";
  }
}

/** Show how a number is computed. */
export async function showTrace(inspector, level) {
  const { source, node, t } = inspector, unit = source.ticks ? "tick" : "row";
  if (t === null) throw new Error(source.why);
  const trace = await source.explain(node, t, level.group, level.index, level.at ?? null);
  const own = source.place(node)?.layer.coord ?? "", stepId = i => `inspect-step-${i}`;

  function link(operand) {
    const { of } = operand;
    if (operand.step !== undefined) return h("button", { type: "button", class: "inspect-link", onclick: () => show(operand.step) }, `step ${operand.step + 1}`);
    if (of?.kind === "parameter") {
      const here = source.place(node).layer, layer = here.parameters.some(one => `${here.coord}/${one.name}` === of.name || one.shared === of.name) ? here : source.layerAt(of.name.split("/")[0]);
      const parameter = layer?.parameters.find(one => `${layer.coord}/${one.name}` === of.name || one.shared === of.name);
      if (parameter && of.index) {
        const [row, column] = matrixPlace(parameter.shape, of.index);
        const level = { kind: "weight", parameter: parameter.name, row, column, index: of.index };
        return h("button", { type: "button", class: "inspect-link", onclick: () => { if (layer !== here) inspector.choose(layer.first); inspector.open(level); } }, originText(of, own));
      }
    }
    if (of?.kind === "layer" && source.firstNode(of.name) !== null) {
      return h("button", { type: "button", class: "inspect-link", onclick: () => inspector.choose(source.firstNode(of.name)) }, originText(of, own));
    }
    if (operand.at && source.live) {
      return h("button", { type: "button", class: "inspect-link", onclick: () => inspector.open({ kind: "step", group: level.group, index: level.index, at: operand.at, depth: (level.depth ?? 1) + 1 }) }, "how");
    }
    return of ? h("small", {}, originText(of, own)) : null;
  }
  const operandRow = operand => h("tr", {}, h("th", { scope: "row" }, operand.name), h("td", { class: "number", title: String(operand.value) }, short(operand.value)), h("td", {}, link(operand)));
  function termRows(step) {
    const total = Math.max(...step.terms.map(term => Math.abs(term.value))) || 1;
    let sum = 0;
    const rows = step.terms.map(term => {
      sum += Number(term.value);
      const label = term.factors.map(factor => (factor.of ? originText(factor.of, own) : factor.name)).join(" · ");
      return h("tr", { title: term.factors.map(factor => `${factor.of ? originText(factor.of, own) : factor.name} = ${factor.value}`).join("\n") },
        h("td", { class: "inspect-factors" }, term.factors.map((factor, i) => h("div", {}, i ? "× " : "", h("span", { class: "number" }, short(factor.value)), " ", link(factor) ?? h("small", {}, factor.name)))),
        h("td", { class: "number", "aria-label": `${label} is ${term.value}` }, h("i", { class: term.value < 0 ? "inspect-bar minus" : "inspect-bar", style: `width:${(Math.abs(term.value) / total * 100).toFixed(1)}%` }), short(term.value)),
        h("td", { class: "number dim" }, short(sum)));
    });
    const left = step.count - step.terms.length;
    if (left > 0) rows.push(h("tr", {}, h("td", { class: "dim" }, `${short(left)} smaller terms`), h("td", { class: "number" }, short(step.rest)), h("td", { class: "number dim" }, short(sum + Number(step.rest)))));
    return h("table", { class: "inspect-terms" }, h("thead", {}, h("tr", {}, h("th", {}, `${short(step.count)} terms, the largest first`), h("th", {}, "product"), h("th", {}, "sum"))), h("tbody", {}, rows));
  }
  const cards = trace.steps.map((step, i) => h("li", { id: stepId(i), tabindex: -1, class: "inspect-step" },
    h("p", { class: "inspect-formula" }, h("b", {}, `${i + 1}`), h("code", {}, step.formula || "…"), h("span", { class: "number", title: String(step.value) }, `= ${short(step.value)}`)),
    step.note ? h("p", { class: "dim" }, step.note) : null,
    step.operands.length ? h("table", { class: "inspect-operands" }, h("tbody", {}, step.operands.map(operandRow))) : null,
    step.terms ? termRows(step) : null));
  const list = h("ol", { class: "inspect-steps" }, cards);
  function show(i) { cards[i].scrollIntoView({ block: "nearest", behavior: inspector.app.reducedMotion() ? "auto" : "smooth" }); cards[i].focus({ preventScroll: true }); }
  return {
    timed: true,
    element: h("div", { class: "inspect-trace" },
      h("p", { class: "inspect-value number" }, String(trace.value)),
      h("p", { class: "dim" }, `${level.group}[${level.place ?? level.index}] at ${unit} ${(trace.t ?? t) + 1}, in float64${trace.fired === false ? `; it does not compute at this ${unit}` : ""}`),
      list),
  };
}
