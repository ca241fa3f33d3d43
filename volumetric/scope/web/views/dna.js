// How two models differ: the similarity of their DNA as a tower of layers, and lists of what differs most.
import { h, short } from "../elements.js";
import { classColour, colourTable, gradient } from "../charts/colours.js";
import { count, percent } from "../charts/quantities.js";
import { sortableTable } from "../charts/sortable_table.js";

const EVEN = "viridis",
  AROUND = "PuOr";

/** Show the view; see main.js for what it returns. */
export async function mount(element, view, app) {
  const data = view.data,
    cells = data.cells;
  const columnsOf = async () =>
    Object.fromEntries(
      await Promise.all(["error", "cosine", "largest", "elements"].map(async name => [name, (await app.doc.array(data.weights[name])).data])),
    );
  const numbers = await columnsOf();
  const weights = data.weights.keys.map((key, i) => ({
    key,
    error: numbers.error[i],
    cosine: numbers.cosine[i],
    largest: numbers.largest[i],
    elements: numbers.elements[i],
  }));
  const values = cells.map(cell => cell.similarity).filter(value => value !== null);
  const lowest = Math.min(...values, 1);
  let scale = lowest < 1 && lowest > 0 ? "spread" : "whole",
    chosen = null;

  const slots = [...new Set(cells.map(cell => cell.column))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const groups = new Map();
  for (const cell of cells) {
    const place = `${cell.block}/${cell.column}`;
    if (!groups.has(place)) groups.set(place, { block: cell.block, column: cell.column, cells: [] });
    groups.get(place).cells.push(cell);
  }
  const leastOf = group => group.cells.reduce((least, cell) => (cell.similarity === null ? least : Math.min(least, cell.similarity)), Infinity);
  const number = value => (value >= 0.99995 ? "1" : value.toFixed(value > 0.99 ? 4 : 3));
  const span = Math.max(1e-9, 1 - lowest);
  function colour(value) {
    const at = scale === "whole" ? (value + 1) / 2 : Math.max(0, (value - lowest) / span);
    const table = colourTable(scale === "whole" ? AROUND : EVEN),
      code = 3 * Math.max(0, Math.min(255, Math.round(255 * at)));
    return table.subarray(code, code + 3);
  }
  const tower = h("div", {
    class: "dna-tower",
    role: "grid",
    "aria-label": "Similarity of each layer, the last block at the top",
    style: `grid-template-columns: auto repeat(${slots.length}, minmax(54px, 1fr))`,
  });
  const floors = data.blocks
    .map((_, block) => block)
    .filter(block => slots.some(column => groups.has(`${block}/${column}`)))
    .reverse();
  const boxes = [];
  /** What most layers of a column are. */
  function headOf(column) {
    const names = new Map();
    for (const cell of cells)
      if (cell.column === column && !["embedding", "head"].includes(data.blocks[cell.block]))
        names.set(cell.family, (names.get(cell.family) ?? 0) + 1);
    const most = [...names].sort((a, b) => b[1] - a[1])[0];
    return most ? data.families[most[0]] : "";
  }
  function drawTower() {
    const had = tower.contains(document.activeElement) ? boxes.findIndex(line => line.includes(document.activeElement)) : -1;
    tower.replaceChildren(
      h(
        "div",
        { role: "row", class: "dna-row dna-heads" },
        h("span", { role: "columnheader" }),
        slots.map(column => h("span", { role: "columnheader", class: "dim" }, headOf(column))),
      ),
    );
    boxes.length = 0;
    for (const block of floors) {
      const inside = slots.map(column => groups.get(`${block}/${column}`));
      const row = h("div", { role: "row", class: "dna-row" }, h("span", { role: "rowheader", class: "dim" }, data.blocks[block]));
      const line = [];
      for (const group of inside) {
        if (!group) {
          row.append(h("span", { role: "gridcell", class: "dna-none" }));
          continue;
        }
        const least = leastOf(group),
          first = group.cells[0],
          gone = least === Infinity;
        const rgb = gone ? null : colour(least);
        const what = group.cells.length > 1 ? `${group.cells.length} parts, least similar` : first.what;
        const label = `${data.blocks[block]}, ${what}: ${gone ? "only in the first" : least.toFixed(6)}`;
        const box = h(
          "button",
          {
            type: "button",
            role: "gridcell",
            class: "dna-cell",
            tabindex: -1,
            "aria-label": label,
            "data-place": `${block}/${group.column}`,
            style: rgb ? `background:rgb(${rgb.join(",")});color:${0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140 ? "#10131a" : "#fff"}` : "",
            onclick() {
              pick(group, box);
            },
            onpointermove(event) {
              app.tooltip.show(
                event.clientX,
                event.clientY,
                group.cells
                  .slice(0, 12)
                  .map(cell => `${cell.path} ${cell.what}: ${cell.similarity === null ? "only in the first" : cell.similarity.toFixed(6)}`)
                  .concat(group.cells.length > 12 ? [`and ${group.cells.length - 12} more`] : [])
                  .join("\n"),
              );
            },
            onpointerleave() {
              app.tooltip.hide();
            },
          },
          gone ? "—" : number(least),
        );
        row.append(box);
        line.push(box);
      }
      boxes.push(line);
      tower.append(row);
    }
    const start = boxes[Math.max(0, had)]?.[0];
    if (start) start.tabIndex = 0;
  }
  tower.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const row = boxes.findIndex(line => line.includes(document.activeElement)),
      place = boxes[row]?.indexOf(document.activeElement) ?? 0;
    const line = boxes[row + step[0]],
      next = line?.[Math.max(0, Math.min(line.length - 1, place + step[1]))];
    if (!next) return;
    for (const one of boxes.flat()) one.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  function pick(group, box) {
    for (const one of boxes.flat()) one.removeAttribute("aria-selected");
    box.setAttribute("aria-selected", "true");
    chosen = group;
    layers.choose(group.cells.reduce((least, cell) => ((cell.similarity ?? 2) < (least.similarity ?? 2) ? cell : least)));
    app.announce(box.getAttribute("aria-label"));
  }
  const layers = sortableTable(
    [
      { label: "Block", value: cell => cell.block, cell: cell => data.blocks[cell.block] },
      {
        label: "Layer",
        value: cell => cell.what,
        cell: cell =>
          h(
            "span",
            {},
            h("span", { class: "swatch", style: `background:${classColour(cell.family)}` }),
            " ",
            cell.what,
            h("span", { class: "dim" }, ` ${cell.path}`),
          ),
      },
      {
        label: "Similarity",
        value: cell => cell.similarity,
        cell: cell => (cell.similarity === null ? "only in the first" : cell.similarity.toFixed(6)),
      },
    ],
    cells,
    {
      label: "Layers, the least similar first",
      sort: [2, false],
      rowLabel: cell => `${data.blocks[cell.block]}, ${cell.what}`,
      onPick(cell) {
        const box = tower.querySelector(`[data-place="${CSS.escape(`${cell.block}/${cell.column}`)}"]`);
        for (const one of boxes.flat()) one.removeAttribute("aria-selected");
        box?.setAttribute("aria-selected", "true");
      },
    },
  );
  const single = weights.length
    ? sortableTable(
        [
          { label: "Weight", value: row => row.key },
          { label: "Elements", number: true, value: row => row.elements, cell: row => count(row.elements) },
          { label: "Error", number: true, title: "‖a − b‖ / ‖a‖", value: row => row.error, cell: row => percent(row.error) },
          { label: "Cosine", number: true, value: row => row.cosine, cell: row => row.cosine.toFixed(6) },
          { label: "Largest", number: true, title: "Largest |a − b|", value: row => row.largest, cell: row => short(row.largest) },
        ],
        weights,
        { label: "Weights, the farthest first", sort: [2, true], rowLabel: row => row.key },
      )
    : null;
  const lists = h("div", { class: "dna-lists" });
  const show = what => {
    lists.replaceChildren(what === "layers" ? layers.element : single.element);
  };
  const legend = h("div", { class: "legend" });
  function drawLegend() {
    const [map, low] = scale === "whole" ? [AROUND, "−1"] : [EVEN, number(lowest)];
    legend.replaceChildren(
      h("span", {}, low),
      h("span", { class: "ramp", style: `background:${gradient(map)}` }),
      h("span", {}, "1"),
      h("span", { class: "dim" }, "cosine"),
    );
  }
  const choice = (label, entries, change) =>
    h(
      "label",
      { class: "choice" },
      h("span", {}, label),
      h(
        "select",
        {
          onchange(event) {
            change(event.target.value);
          },
        },
        entries.map(([value, text]) => h("option", { value }, text)),
      ),
    );
  const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  const scales = choice(
    "Scale",
    [
      ["spread", "lowest … 1"],
      ["whole", "−1 … 1"],
    ],
    value => {
      scale = value;
      drawTower();
      drawLegend();
    },
  );
  scales.querySelector("select").value = scale;
  const notes = [
    Math.abs(data.overall) < 0.1 ? "Models that were trained separately have their hidden units in another order, and look unrelated." : "",
    data.shifts.length
      ? `Moved: ${data.shifts
          .slice(0, 8)
          .map(one => `${one.source} → ${one.target} (${one.similarity.toFixed(3)})`)
          .join(", ")}${data.shifts.length > 8 ? " …" : ""}`
      : "",
    data.only[0] ? `${data.only[0]} layers only in ${data.first}` : "",
    data.only[1] ? `${data.only[1]} layers only in ${data.second}` : "",
    data.leftOut ? `${data.leftOut.toLocaleString("en")} layers that differ less are not shown` : "",
  ].filter(Boolean);
  element.append(
    h(
      "div",
      { class: "dna" },
      h(
        "dl",
        { class: "facts" },
        fact("first", data.first),
        fact("second", data.second),
        fact("similarity", data.overall.toFixed(4)),
        fact("layers compared", values.length.toLocaleString("en")),
      ),
      h(
        "section",
        { class: "panel dna-left", "aria-label": "Tower" },
        h("div", { class: "choices" }, scales, legend),
        h("div", { class: "dna-box" }, tower),
        ...notes.map(text => h("p", { class: "dim" }, text)),
      ),
      h(
        "section",
        { class: "panel dna-right", "aria-label": "What differs most" },
        h(
          "div",
          { class: "choices" },
          h("h2", {}, "What differs most"),
          single
            ? choice(
                "List",
                [
                  ["layers", "Layers"],
                  ["weights", "Weights"],
                ],
                show,
              )
            : null,
        ),
        lists,
      ),
    ),
  );
  drawTower();
  drawLegend();
  show("layers");
  return {
    key: () => false,
    exports: () => ({
      figures: () => [
        {
          kind: "matrix",
          title: `similarity of ${data.first} and ${data.second}`,
          shape: [floors.length, slots.length],
          map: scale === "whole" ? AROUND : EVEN,
          range: scale === "whole" ? [-1, 1] : [lowest, 1],
          values: floors.flatMap(block =>
            slots.map(column => {
              const group = groups.get(`${block}/${column}`),
                least = group ? leastOf(group) : Infinity;
              return Number.isFinite(least) ? least : null;
            }),
          ),
          rowNames: floors.map(block => data.blocks[block]),
          columnNames: slots.map(headOf),
        },
      ],
    }),
    destroy() {
      layers.destroy();
      single?.destroy();
      app.tooltip.hide();
    },
  };
}
