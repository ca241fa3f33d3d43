// Numbers that go into a network: a slider and a box for each, with names and ranges from the export.
import { h } from "./elements.js";

/** A list of an export's hints; anything else counts as an empty one. */
export const listOf = value => (Array.isArray(value) ? value : []);

export const widthOf = port => port.shape.reduce((a, b) => a * b, 1);

/** Return name, range and first value of each number of the inputs: {port, name, low, high, value, step}. */
export function fieldsOf(network) {
  return Object.entries(network.inputs).flatMap(([port, description]) => {
    const whole = description.dtype === "int32", most = whole ? { low: 0, high: 9 } : { low: -1, high: 1 };
    const hints = listOf(network.ui?.fields?.[port]), width = widthOf(description);
    return Array.from({ length: width }, (_, i) => {
      const { name = description.names?.[i], low = most.low, high = most.high, value } = hints[i] ?? {};
      const range = low < high ? { low, high } : most;
      const at = Number.isFinite(value) ? value : Math.min(range.high, Math.max(range.low, 0));
      return { port, name: String(name ?? (width > 1 ? `${port} ${i + 1}` : port)), ...range, value: at, step: whole ? 1 : roundStep((range.high - range.low) / 200) };
    });
  });
}

/** Return rows of numbers of all fields as the arrays that `run` takes, of all ports or of some. */
export function inputsOf(network, fields, rows, ports = Object.keys(network.inputs)) {
  const inputs = {};
  for (const port of ports) {
    const { dtype } = network.inputs[port];
    const columns = fields.flatMap((field, i) => (field.port === port ? [i] : []));
    inputs[port] = (dtype === "int32" ? Int32Array : Float32Array).from(rows.flatMap(row => columns.map(i => row[i])));
  }
  return inputs;
}

/** Return an element with a slider for each field; `changed(values)` is called at each move. */
export function sliders(fields, changed) {
  const values = fields.map(field => field.value);
  const rows = fields.map((field, i) => {
    const { low, high, step, name } = field;
    const slide = h("input", { type: "range", min: low, max: high, step, value: field.value, "aria-label": name });
    const box = h("input", { type: "number", step: "any", value: rounded(field.value), "aria-label": `${name}, as a number` });
    const take = (value, other) => {
      if (!Number.isFinite(value)) return;
      values[i] = value;
      other.value = other === box ? rounded(value) : value;
      slide.setAttribute("aria-valuetext", rounded(value)); // the slider's own value has many digits
      changed(values);
    };
    slide.setAttribute("aria-valuetext", rounded(field.value));
    slide.addEventListener("input", () => take(slide.valueAsNumber, box));
    box.addEventListener("input", () => take(box.valueAsNumber, slide));
    return h("div", { class: "field" }, h("span", { class: "field-name", title: name }, name), slide, box);
  });
  const element = h("div", { class: "fields" }, rows);
  return {
    element,
    values,
    /** Set all values. */
    set(next) {
      next.forEach((value, i) => {
        values[i] = value;
        const [, slide, box] = rows[i].children;
        slide.value = value;
        slide.setAttribute("aria-valuetext", rounded(value));
        box.value = rounded(value);
      });
      changed(values);
    },
  };
}

/** The largest of 1, 2 or 5 times a power of ten that is not above a number. */
function roundStep(most) {
  const ten = 10 ** Math.floor(Math.log10(most));
  return ten * (most >= 5 * ten ? 5 : most >= 2 * ten ? 2 : 1);
}

const rounded = value => String(Number(value.toPrecision(4)));
