// The likeliest tokens at every layer and position: the head of the model applied to the residual stream behind each block.
import { h } from "../elements.js";
import { colourTable, gradient } from "../charts/colours.js";
import { lineChart } from "../charts/line_chart.js";
import { percent } from "../charts/quantities.js";

const MAP = "viridis";

/** Show the view; see main.js for what it returns. */
export async function mount(element, view, app) {
  const data = view.data;
  const [top, probability, entropy] = (await Promise.all([data.top, data.probability, data.entropy].map(one => app.doc.array(one)))).map(
    one => one.data,
  );
  const layers = data.layers.length,
    places = data.tokens.length,
    ten = top.length / (layers * places);
  const cell = (layer, place) => (layer * places + place) * ten;
  const text = (layer, place, k = 0) => data.vocabulary[top[cell(layer, place) + k]];
  const most = Math.log2(data.size);
  let by = "probability";
  const parse = /^(\d+)\.(\d+)$/.exec(app.state.get("cell", "")) ?? [0, layers - 1, places - 1];
  let chosen = [Math.min(Number(parse[1]), layers - 1), Math.min(Number(parse[2]), places - 1)];

  const valueOf = (layer, place) => (by === "probability" ? probability[cell(layer, place)] : 1 - entropy[layer * places + place] / most);
  const list = (layer, place) =>
    h(
      "ol",
      { class: "likeliest" },
      Array.from({ length: ten }, (_, k) => {
        const p = probability[cell(layer, place) + k];
        return h(
          "li",
          {},
          h("span", { class: "token" }, text(layer, place, k)),
          h("span", { class: "likely-bar" }, h("span", { style: `width:${(100 * p).toFixed(1)}%` })),
          h("span", { class: "number" }, percent(p)),
        );
      }),
    );
  const titleOf = (layer, place) => `${data.layers[layer]}, ${data.predicts === "next" ? "after" : "at"} ${data.tokens[place]} (${place})`;
  const tip = (layer, place) =>
    h(
      "div",
      {},
      h("strong", {}, titleOf(layer, place)),
      list(layer, place),
      h("span", {}, `entropy ${entropy[layer * places + place].toFixed(2)} bits`),
    );

  const head = h(
    "tr",
    {},
    h("th", { scope: "col", class: "corner" }, "layer"),
    data.tokens.map((token, i) => h("th", { scope: "col", title: `token ${i}, id ${data.ids[i]}` }, h("span", { class: "token" }, token))),
  );
  const cells = [];
  const body = h(
    "tbody",
    {},
    Array.from({ length: layers }, (_, row) => {
      const layer = layers - 1 - row;
      cells[layer] = Array.from({ length: places }, (_, place) =>
        h(
          "td",
          {
            tabindex: -1,
            role: "gridcell",
            "data-cell": `${layer}.${place}`,
            class: text(layer, place) === text(layers - 1, place) ? "settled" : null,
          },
          h("span", { class: "token" }, text(layer, place)),
        ),
      );
      return h("tr", {}, h("th", { scope: "row" }, data.layers[layer]), cells[layer]);
    }),
  );
  const table = h(
    "table",
    { class: "lens-table", role: "grid", "aria-label": "Likeliest token for each layer and position" },
    h("thead", {}, head),
    body,
  );
  const box = h("div", { class: "lens-box" }, table);
  function paint() {
    const colours = colourTable(MAP);
    for (let layer = 0; layer < layers; layer++) {
      for (let place = 0; place < places; place++) {
        const value = valueOf(layer, place),
          code = 3 * Math.max(0, Math.min(255, Math.round(255 * value)));
        const [r, g, b] = colours.subarray(code, code + 3),
          td = cells[layer][place];
        td.style.background = `rgb(${r},${g},${b})`;
        td.style.color = 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10131a" : "#fff";
        td.setAttribute("aria-label", `${titleOf(layer, place)}: ${text(layer, place)}, ${percent(probability[cell(layer, place)])}`);
      }
    }
    caption.textContent = by === "probability" ? "probability of the likeliest token" : `certainty: 1 − entropy / ${most.toFixed(1)} bits`;
  }
  const placeOf = event => event.target.closest?.("td[data-cell]")?.dataset.cell.split(".").map(Number);
  body.addEventListener("pointermove", event => {
    const place = placeOf(event);
    if (place) app.tooltip.show(event.clientX, event.clientY, tip(...place));
    else app.tooltip.hide();
  });
  body.addEventListener("pointerleave", () => app.tooltip.hide());
  body.addEventListener("click", event => {
    const place = placeOf(event);
    if (place) pin(...place);
  });
  body.addEventListener("keydown", event => {
    const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = [chosen[0] + step[0], chosen[1] + step[1]];
    if (!cells[next[0]]?.[next[1]]) return;
    pin(...next);
    cells[next[0]][next[1]].focus();
  });

  const title = h("h2"),
    details = h("div");
  const chart = lineChart([], {
    title: "Through the layers",
    xLabel: "layer, 0 is the embedding",
    yLabel: "probability",
    height: 190,
    tooltip: app.tooltip,
    onPick: layer => pin(Math.max(0, Math.min(layers - 1, Math.round(layer))), chosen[1]),
  });
  /** Probability of a token at a position in each layer, as far as it is among the listed ones. */
  const course = (token, place) =>
    Float64Array.from({ length: layers }, (_, layer) => {
      for (let k = 0; k < ten; k++) if (top[cell(layer, place) + k] === token) return probability[cell(layer, place) + k];
      return NaN;
    });
  function pin(layer, place) {
    cells[chosen[0]][chosen[1]].removeAttribute("aria-selected");
    cells[chosen[0]][chosen[1]].tabIndex = -1;
    chosen = [layer, place];
    const td = cells[layer][place];
    td.setAttribute("aria-selected", "true");
    td.tabIndex = 0;
    app.state.set("cell", `${layer}.${place}`);
    title.textContent = titleOf(layer, place);
    const last = top[cell(layers - 1, place)],
      here = top[cell(layer, place)];
    details.replaceChildren(
      list(layer, place),
      h("p", { class: "dim" }, `entropy ${entropy[layer * places + place].toFixed(2)} of at most ${most.toFixed(2)} bits`),
    );
    const x = Float64Array.from({ length: layers }, (_, i) => i);
    chart.element.querySelector("figcaption").textContent =
      `Through the layers: ${[...new Set([last, here])].map(token => data.vocabulary[token]).join(" and ")}`;
    chart.update([...new Set([last, here])].map(token => ({ name: data.vocabulary[token], x, y: course(token, place) })));
    app.announce(td.getAttribute("aria-label"));
  }
  const caption = h("span", { class: "dim" });
  const select = h(
    "select",
    {
      onchange(event) {
        by = event.target.value;
        paint();
      },
    },
    h("option", { value: "probability" }, "Probability"),
    h("option", { value: "entropy" }, "Certainty"),
  );
  element.append(
    h(
      "div",
      { class: "lens" },
      h(
        "section",
        { class: "panel lens-main", "aria-label": "Layers and positions" },
        h(
          "div",
          { class: "choices" },
          h("label", { class: "choice" }, h("span", {}, "Colour"), select),
          h(
            "div",
            { class: "legend" },
            h("span", {}, "0"),
            h("span", { class: "ramp", style: `background:${gradient(MAP)}` }),
            h("span", {}, "1"),
            caption,
          ),
          h("span", { class: "dim" }, "underlined: as the last layer"),
          data.leftOut ? h("span", { class: "dim" }, `${data.leftOut.toLocaleString("en")} more tokens are not shown`) : null,
        ),
        box,
      ),
      h("aside", { class: "panel lens-side", "aria-label": "Chosen cell" }, title, details, chart.element),
    ),
  );
  paint();
  pin(...chosen);
  box.scrollLeft = cells[chosen[0]][chosen[1]].offsetLeft - box.clientWidth / 2;
  return {
    key: () => false,
    exports: () => ({
      svg: chart.svg,
      figures: () => [
        {
          kind: "matrix",
          title: caption.textContent,
          shape: [layers, places],
          map: MAP,
          range: [0, 1],
          values: Array.from({ length: layers * places }, (_, i) => valueOf(layers - 1 - Math.floor(i / places), i % places)),
          rowNames: [...data.layers].reverse(),
          columnNames: data.tokens,
        },
      ],
    }),
    destroy() {
      chart.destroy();
      app.tooltip.hide();
    },
  };
}
