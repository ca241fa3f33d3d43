// Numbers that come out of a network: a bar for each, with the name of its class or output.
import { h, short } from "./elements.js";
import { widthOf } from "./fields.js";

const MOST_CLASSES = 20; // that are all shown; of more, the likeliest are
const MOST_NUMBERS = 64;

/** Return names of the numbers of an output. */
export function namesOf(network, port) {
  const description = network.outputs[port], width = widthOf(description), hints = network.ui?.outputs?.[port] ?? {};
  const names = hints.names ?? description.names ?? [];
  return Array.from({ length: width }, (_, i) => String(names[i] ?? (width > 1 ? `${description.label ?? port} ${i + 1}` : description.label ?? port)));
}

/** Whether the numbers of an output are scores of classes. */
export function areClasses(network, port) {
  const { names } = network.outputs[port];
  return Array.isArray(names) && names.length > 1 && names.length === widthOf(network.outputs[port]);
}

/** Return scores of classes as probabilities (softmax, unless they are probabilities already), other numbers as they are. */
export function meaning(network, port, row) {
  const values = [...row];
  if (!areClasses(network, port)) return values;
  if (values.every(x => x >= 0) && Math.abs(values.reduce((a, b) => a + b, 0) - 1) < 1e-3) return values;
  const most = Math.max(...values), weights = values.map(x => Math.exp(x - most)), sum = weights.reduce((a, b) => a + b, 0);
  return weights.map(x => x / sum);
}

/** Return an element that shows the outputs of one row, with `show(outputs)`. */
export function answers(network) {
  const visible = Object.keys(network.outputs).every(port => areClasses(network, port) || widthOf(network.outputs[port]) === 1);
  const live = h("p", { class: visible ? "answer" : "unseen", role: "status", "aria-live": "polite" });
  const parts = Object.keys(network.outputs).map(port => {
    const names = namesOf(network, port);
    const classes = areClasses(network, port), most = classes ? MOST_CLASSES : MOST_NUMBERS;
    const rows = names.slice(0, most).map(() => {
      const name = h("span", { class: "name" }), fill = h("span", { class: "fill" }), zero = h("span", { class: "zero", hidden: true }), value = h("span", { class: "value number" });
      return { name, fill, zero, value, element: h("li", {}, name, h("span", { class: "bar" }, fill, zero), value) };
    });
    const rest = names.length > most ? h("p", { class: "note" }, `The ${classes ? "likeliest" : "first"} ${most} of ${names.length.toLocaleString("en")}.`) : null;
    return { port, names, rows, element: h("div", {}, h("ul", { class: "bars", "aria-label": network.outputs[port].label ?? port }, rows.map(row => row.element)), rest) };
  });
  let spoken = 0;
  const element = h("div", { class: "answers" }, live, parts.map(part => part.element));
  return {
    element,
    show(outputs) {
      const words = [];
      for (const { port, names, rows } of parts) {
        const values = meaning(network, port, outputs[port]), classes = areClasses(network, port);
        const low = Math.min(0, ...values), high = Math.max(1, ...values), span = high - low;
        const best = values.indexOf(Math.max(...values));
        const order = [...values.keys()];
        if (classes && names.length > rows.length) order.sort((a, b) => values[b] - values[a]);
        rows.forEach(({ name, fill, zero, value, element: row }, r) => {
          const i = order[r];
          if (name.textContent !== names[i]) name.textContent = name.title = names[i];
          zero.hidden = low === 0;
          zero.style.left = `${100 * -low / span}%`;
          const from = (Math.min(0, values[i]) - low) / span, to = (Math.max(0, values[i]) - low) / span;
          fill.style.left = `${100 * from}%`;
          fill.style.width = `${100 * (to - from)}%`;
          value.textContent = classes ? `${(100 * values[i]).toFixed(1)} %` : short(values[i]);
          row.classList.toggle("best", classes && i === best);
        });
        if (classes) words.push(names[best]);
        else if (values.length <= 4) words.push(values.map((value, i) => `${names[i]} ${short(value)}`).join(", "));
      }
      // A screen reader need not hear each step of a slider.
      clearTimeout(spoken);
      live.dataset.answer = words.join("; ");
      spoken = setTimeout(() => { live.textContent = live.dataset.answer; }, 250);
    },
  };
}
