// When rows arrive at the inputs of a clocked network: each at its own period, between which it holds its last row.
import { h } from "./elements.js";

/**
 * Return {element, at}: `at(tick)` are the inputs that get a row at a tick.
 * @param {object} network of the kind `ticks`: `ticks.programs` says which inputs may arrive together
 */
export function feeding(network) {
  const ports = Object.keys(network.inputs), { programs } = network.ticks;
  const apart = programs.length >= 2 ** ports.length; // else they arrive together, or not at all
  const groups = (apart ? ports.map(name => [name]) : [ports]).map(names => {
    const [period, phase] = apart ? network.inputs[names[0]].every ?? [1, 0] : [1, 0];
    const name = apart ? names[0] : "All inputs";
    const box = h("input", { type: "number", min: 0, step: 1, value: period, "aria-label": `${name}: ticks from one row to the next, 0 for none` });
    return { names, phase, box, row: h("label", { class: "inline" }, `${name}: a row every`, box, "ticks") };
  });
  return {
    element: h("div", { class: "buttons" }, groups.map(one => one.row), h("span", { class: "note" }, "0: it holds its last row.")),
    at(tick) {
      return groups.filter(({ phase, box }) => box.valueAsNumber >= 1 && (tick - phase) % Math.floor(box.valueAsNumber) === 0).flatMap(one => one.names);
    },
  };
}
