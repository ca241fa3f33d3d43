// What each head of a model reads in a prompt: all heads as small matrices, one of them large, and the text itself.
import { h, short } from "../elements.js";
import { gradient } from "../charts/colours.js";
import { heatMap } from "../charts/heat_map.js";
import { smallMultiples } from "../charts/small_multiples.js";
import { tokenLine } from "../charts/token_line.js";

const MAP = "viridis";

/** Show the view; see main.js for what it returns. */
export async function mount(element, view, app) {
  const data = view.data,
    size = data.tokens.length;
  const layers = await Promise.all(data.layers.map(async layer => ({ ...layer, weights: (await app.doc.array(layer.weights)).data })));
  const matrixOf = (layer, head) => layers[layer].weights.subarray(head * size * size, (head + 1) * size * size);
  const parse = /^(\d+)\.(\d+)$/.exec(app.state.get("head", "")) ?? [0, 0, 0];
  let layer = Math.min(Number(parse[1]), layers.length - 1),
    head = Math.min(Number(parse[2]), layers[layer].heads - 1);
  let subject = "head",
    direction = "reads",
    root = true,
    token = null;

  const shade = value => (root ? Math.sqrt(value) : value);
  /** Whether a token may see another in a layer. */
  const sees = (one, row, column) =>
    (!one.causal || column <= row) &&
    (!one.window || Math.abs(row - column) < one.window) &&
    (!one.chunk || column >= Math.floor(row / one.chunk) * one.chunk);
  const rows = layers.map((one, i) => ({
    name: one.block,
    matrices: Array.from({ length: one.heads }, (_, k) => ({ data: matrixOf(i, k), size, blank: (row, column) => !sees(one, row, column) })),
  }));
  const nameOf = (i, k) => `${layers[i].block}, head ${k}`;
  const about = (i, k) => {
    const one = layers[i],
      group = Math.floor(k / (one.heads / one.kvHeads));
    return [
      one.kvHeads < one.heads ? `shares key/value head ${group} of ${one.kvHeads}` : "",
      one.window ? `window of ${one.window} tokens` : "",
      one.chunk ? `chunks of ${one.chunk} tokens` : "",
      one.sinks ? "with a sink" : "",
    ].filter(Boolean);
  };

  /** Weights of the subject: one head, the mean of its layer, or the mean of all; [size × size]. */
  function weights() {
    if (subject === "head") return matrixOf(layer, head);
    const sum = new Float32Array(size * size),
      some = subject === "layer" ? [layers[layer]] : layers;
    let count = 0;
    for (const one of some) {
      for (let k = 0; k < one.heads; k++, count++) {
        const values = one.weights.subarray(k * size * size, (k + 1) * size * size);
        for (let i = 0; i < sum.length; i++) sum[i] += values[i];
      }
    }
    return sum.map(value => value / count);
  }
  let shown = weights();

  const line = tokenLine(data.tokens, {
    label: "Prompt",
    onHover(i) {
      paint(i ?? token);
    },
    onPick(i) {
      token = i;
      paint(i);
      if (i !== null) app.announce(sentence(i));
    },
  });
  const note = h("p", { class: "dim attention-note" });
  function shades(i) {
    return Float32Array.from({ length: size }, (_, k) => (direction === "reads" ? shown[i * size + k] : shown[k * size + i]));
  }
  function strongest(values) {
    return Array.from(values.keys())
      .sort((a, b) => values[b] - values[a])
      .slice(0, 4)
      .filter(k => values[k] >= 0.005);
  }
  function sentence(i) {
    const values = shades(i),
      list = strongest(values)
        .map(k => `“${data.tokens[k]}” ${short(Number(values[k].toFixed(3)))}`)
        .join(" · ");
    if (direction === "read") return `“${data.tokens[i]}” is read by ${list || "no token"}`;
    const rest = 1 - values.reduce((a, b) => a + b, 0);
    const sink = layers[layer].sinks && rest > 0.005 ? ` · ${short(Number(rest.toFixed(3)))} goes to the sink` : "";
    return `“${data.tokens[i]}” reads ${list || "no token"}${sink}`;
  }
  function paint(i) {
    line.paint(i === null ? null : shades(i).map(shade), i);
    note.textContent = i === null ? "Point at a token to see what it reads." : sentence(i);
  }

  const title = h("h2"),
    facts = h("p", { class: "dim" });
  const hidden = (row, column) => !(subject === "all" ? layers : [layers[layer]]).some(one => sees(one, row, column));
  // few tokens are written beside the matrix
  const wide = Math.min(400, (element.clientWidth || 400) - 56),
    labelled = size <= 26;
  const side = Math.max(2, Math.min(26, Math.floor((wide - (labelled ? 84 : 0)) / size)));
  const names = className =>
    labelled
      ? h(
          "div",
          { class: className, "aria-hidden": "true", style: `--side:${side}px` },
          data.tokens.map(token => h("span", { class: "token" }, token)),
        )
      : null;
  const describe = (row, column, value) =>
    hidden(row, column)
      ? `${data.tokens[row]} (${row}) cannot see ${data.tokens[column]} (${column})`
      : `${data.tokens[row]} (${row}) → ${data.tokens[column]} (${column})\nweight ${value.toFixed(4)}`;
  const large = heatMap(
    { data: shown, shape: [size, size], range: [0, 1] },
    {
      map: MAP,
      tooltip: app.tooltip,
      cell: side,
      blank: hidden,
      describe: (row, column) => describe(row, column, shown[row * size + column]),
      onHover(row, column) {
        paint(row ?? token);
        if (row !== null) app.announce(describe(row, column, shown[row * size + column]).replace("\n", ", "));
      },
      onPick(row) {
        token = row;
        line.choose(row);
        paint(row);
      },
    },
  );
  large.canvas.setAttribute(
    "aria-label",
    "The chosen head: a row for each token, a column for each token that it reads; arrow keys tell the weights",
  );
  const figure = large.element.figureData;
  large.element.figureData = () => ({ ...figure(), title: `${title.textContent}, ${root ? "square root of the weight" : "weight"}` });
  const legend = h(
    "div",
    { class: "legend" },
    h("span", {}, "0"),
    h("span", { class: "ramp", style: `background:${gradient(MAP)}` }),
    h("span", {}, "1"),
    h("span", { class: "dim" }, ""),
  );
  const grid = smallMultiples(rows, {
    label: "Attention of all heads, a row for each layer; arrow keys choose a head",
    tooltip: app.tooltip,
    shade,
    map: MAP,
    describe: (i, k) => [nameOf(i, k), ...about(i, k)].join("\n"),
    onPick: choose,
  });
  function update() {
    shown = weights();
    title.textContent =
      subject === "head"
        ? nameOf(layer, head)
        : subject === "layer"
          ? `${layers[layer].block}, mean of ${layers[layer].heads} heads`
          : "Mean of all heads";
    facts.textContent =
      subject === "all"
        ? `${rows.reduce((sum, row) => sum + row.matrices.length, 0)} heads in ${layers.length} layers`
        : [`at ${layers[layer].where}`, ...about(layer, head)].join(" · ");
    large.update({
      data: root ? Float32Array.from(shown, Math.sqrt) : shown,
      shape: [size, size],
      range: [0, 1],
      rowNames: data.tokens,
      columnNames: data.tokens,
    });
    legend.lastChild.textContent = root ? "weight, colours by its square root" : "weight";
    paint(token);
  }
  function choose(i, k) {
    [layer, head] = [i, k];
    subject = "head";
    subjects.querySelector("select").value = "head";
    app.state.set("head", `${i}.${k}`);
    app.announce(nameOf(i, k));
    update();
  }
  const select = (label, entries, change) =>
    h(
      "label",
      { class: "choice" },
      h("span", {}, label),
      h(
        "select",
        {
          onchange(event) {
            change(event.target.value);
            update();
          },
        },
        entries.map(([value, text]) => h("option", { value }, text)),
      ),
    );
  const subjects = select(
    "Of",
    [
      ["head", "this head"],
      ["layer", "mean of its layer"],
      ["all", "mean of all heads"],
    ],
    value => {
      subject = value;
    },
  );
  const limits = [
    data.leftOut ? `The prompt goes on for ${data.leftOut.toLocaleString("en")} tokens that are not shown.` : "",
    data.unread.length ? `${data.unread.length} layers mix tokens without such weights and are not shown.` : "",
  ].filter(Boolean);
  element.append(
    h(
      "div",
      { class: "attention" },
      h(
        "section",
        { class: "panel attention-text", "aria-label": "Prompt" },
        line.element,
        note,
        limits.length ? h("p", { class: "dim" }, limits.join(" ")) : null,
      ),
      h(
        "section",
        { class: "panel attention-grid", "aria-label": "All heads" },
        h("div", { class: "choices" }, h("h2", {}, "All heads"), h("span", { class: "dim" }, "layers down, heads across")),
        grid.element,
      ),
      h(
        "section",
        { class: "panel attention-head", "aria-label": "Chosen head" },
        title,
        facts,
        h(
          "div",
          { class: "choices" },
          subjects,
          select(
            "A token",
            [
              ["reads", "reads"],
              ["read", "is read by"],
            ],
            value => {
              direction = value;
            },
          ),
          select(
            "Colour",
            [
              ["root", "√ weight"],
              ["plain", "weight"],
            ],
            value => {
              root = value === "root";
              grid.repaint();
            },
          ),
        ),
        h("div", { class: "labelled" }, names("names-across"), names("names-down"), large.element),
        legend,
      ),
    ),
  );
  const themed = app.dark.subscribe(() => grid.draw());
  grid.choose(layer, head);
  update();
  return {
    key(event) {
      const step = { "[": -1, "]": 1 }[event.key];
      if (!step) return false;
      const next = Math.max(0, Math.min(layers.length - 1, layer + step));
      grid.choose(next, Math.min(head, layers[next].heads - 1));
      choose(next, Math.min(head, layers[next].heads - 1));
      return true;
    },
    exports: () => ({ canvas: grid.canvas }),
    destroy() {
      themed();
      grid.destroy();
      large.destroy();
      line.destroy();
      app.tooltip.hide();
    },
  };
}
