// The layers of a model: bars of their sizes by block, and a table that can be sorted.
import { h, short } from "../elements.js";
import { classColour } from "../charts/colours.js";
import { bytes, count, percent } from "../charts/quantities.js";
import { sortableTable } from "../charts/sortable_table.js";
import { stackedBars } from "../charts/stacked_bars.js";

const MEASURES = {
  bytes: { label: "Bytes", text: bytes, of: row => row.bytes },
  parameters: { label: "Parameters", text: count, of: row => row.parameters },
  damage: { label: "Damage, nats per token", text: short, of: row => row.damage ?? 0 },
};

/** Show the view; see main.js for what it returns. */
export async function mount(element, view, app, tools) {
  const data = view.data,
    rows = data.rows,
    total = data.total;
  const dtypes = Object.keys(data.schemes);
  const measured = rows.some(row => row.damage !== null),
    compared = rows.some(row => row.error !== null);
  let measure = "bytes",
    by = "kind",
    block = null;

  const families = data.families.map((name, i) => ({ name, colour: classColour(i) })).filter((_, i) => rows.some(row => row.family === i));
  const colourOf = row => (by === "kind" ? classColour(row.family) : classColour(Math.max(0, dtypes.indexOf(row.dtypes[0]))));
  const bars = () =>
    data.blocks
      .map((name, i) => {
        const inside = rows.filter(row => row.block === i),
          measureOf = MEASURES[measure];
        const parts = inside.map(row => ({ row, value: measureOf.of(row), colour: colourOf(row), name: row.what })).filter(part => part.value > 0);
        return { name, index: i, parts, text: parts.length ? measureOf.text(parts.reduce((sum, part) => sum + part.value, 0)) : "" };
      })
      .filter(bar => bar.parts.length)
      .reverse();

  const facts = h("dl", { class: "facts" });
  const fact = (name, value, title) => facts.append(h("div", { title: title ?? null }, h("dt", {}, name), h("dd", {}, value)));
  if (data.architecture) fact("architecture", data.architecture);
  fact("parameters", count(total.parameters), total.parameters.toLocaleString("en"));
  fact("size", bytes(total.bytes), `${total.bytes.toLocaleString("en")} bytes`);
  fact("bits per weight", total.bits.toFixed(2));
  fact(
    dtypes.length > 1 ? "numeric types" : "numeric type",
    dtypes.slice(0, 4).join(", ") + (dtypes.length > 4 ? ` and ${dtypes.length - 4} more` : ""),
  );
  if (data.context) fact("context", data.context.toLocaleString("en"));
  if (total.damage !== null) fact("estimated damage", `${short(total.damage)} nats per token`);
  if (total.error !== null) fact(`error against ${data.reference}`, percent(total.error), "‖a − b‖ / ‖a‖ over all weights");

  let drawn = bars();
  const chart = stackedBars(drawn, {
    label: "Size of each block",
    tooltip: app.tooltip,
    describe: (bar, { row }) =>
      [
        `${bar.name} · ${row.what}`,
        `${row.where}`,
        `${count(row.parameters)} parameters, ${bytes(row.bytes)} (${percent(row.bytes / total.bytes)})`,
        `${row.dtypes.join(", ")}, ${row.bits.toFixed(2)} bits per weight`,
        row.damage !== null ? `damage ${short(row.damage)} nats per token` : "",
        row.error !== null ? `relative error ${percent(row.error)}` : "",
      ]
        .filter(Boolean)
        .join("\n"),
    onPick(i) {
      block = i === null ? null : drawn[i].index;
      filter();
    },
  });
  const legend = h("div", { class: "chart-legend" });
  const drawLegend = () =>
    legend.replaceChildren(
      ...(by === "kind" ? families : dtypes.map((name, i) => ({ name, colour: classColour(i) }))).map(one =>
        h("span", { class: "key" }, h("span", { class: "swatch", style: `background:${one.colour}` }), one.name),
      ),
    );
  const redraw = () => {
    drawn = bars();
    chart.update(drawn);
    chart.choose(block === null ? null : drawn.findIndex(bar => bar.index === block));
    drawLegend();
  };

  const columns = [
    { label: "Block", value: row => row.block, cell: row => data.blocks[row.block] },
    {
      label: "Layer",
      value: row => row.what,
      cell: row =>
        h(
          "span",
          {},
          h("span", { class: "swatch", style: `background:${classColour(row.family)}` }),
          " ",
          row.what,
          row.shared.length ? h("span", { class: "dim" }, ` (weights of ${row.shared.join(", ")})`) : null,
        ),
    },
    { label: "Parameters", number: true, value: row => row.parameters, cell: row => (row.parameters ? count(row.parameters) : "") },
    { label: "Type", value: row => row.dtypes.join(", ") },
    {
      label: "Bits",
      number: true,
      title: "Bits per weight, scales included",
      value: row => (row.parameters ? row.bits : null),
      cell: row => (row.parameters ? row.bits.toFixed(2) : ""),
    },
    { label: "Size", number: true, value: row => row.bytes, cell: row => (row.parameters ? bytes(row.bytes) : "") },
    {
      label: "Share",
      number: true,
      title: "Share of all bytes",
      value: row => row.bytes,
      cell: row => (row.parameters ? share(row.bytes / total.bytes) : ""),
    },
  ];
  if (measured)
    columns.push({
      label: "Damage",
      number: true,
      title: "Estimated KL divergence in nats per token",
      value: row => row.damage,
      cell: row => (row.damage === null ? "" : short(row.damage)),
    });
  if (compared)
    columns.push({
      label: "Error",
      number: true,
      title: `‖a − b‖ / ‖a‖ against ${data.reference}`,
      value: row => row.error,
      cell: row => (row.error === null ? "" : percent(row.error)),
    });
  const largest = Math.max(...rows.map(row => row.bytes), 1) / total.bytes;
  function share(part) {
    return h(
      "span",
      { class: "share" },
      h("span", { class: "share-track" }, h("span", { class: "share-bar", style: `width:${((100 * part) / largest).toFixed(1)}%` })),
      h("span", { class: "share-text" }, percent(part)),
    );
  }
  const details = h("section", { class: "panel model-details", "aria-label": "Weights of the chosen layer", hidden: true });
  const table = sortableTable(columns, rows, {
    label: "Layers",
    rowLabel: row => `${data.blocks[row.block]}, ${row.what}`,
    onPick(row) {
      details.hidden = false;
      details.replaceChildren(
        h("h2", {}, `${data.blocks[row.block]} · ${row.what}`),
        h("p", { class: "dim" }, `at ${row.where}`),
        h(
          "ul",
          {},
          row.tensors.map(one =>
            h(
              "li",
              {},
              h("code", {}, one.role),
              ` ${one.count > 1 ? `${one.count} × ` : ""}${one.shape}, ${one.dtype}`,
              one.shared ? h("span", { class: "dim" }, ` of ${one.shared}`) : null,
            ),
          ),
        ),
      );
      app.announce(`${data.blocks[row.block]}, ${row.what}: ${count(row.parameters)} parameters, ${bytes(row.bytes)}`);
    },
  });
  const which = h("p", { class: "dim which" });
  function filter() {
    const inside = block === null ? rows : rows.filter(row => row.block === block);
    table.update(inside);
    which.textContent =
      block === null
        ? `${rows.length.toLocaleString("en")} layers with weights` +
          (data.leftOut.layers ? `; ${data.leftOut.layers.toLocaleString("en")} smaller ones (${bytes(data.leftOut.bytes)}) are not listed` : "")
        : `${data.blocks[block]} only; press its bar again for all`;
  }
  const choices = Object.entries(MEASURES).filter(([key]) => key !== "damage" || measured);
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
            redraw();
          },
        },
        entries.map(([value, text]) => h("option", { value }, text)),
      ),
    );
  element.append(
    h(
      "div",
      { class: "model" },
      facts,
      h(
        "section",
        { class: "panel model-bars", "aria-label": "Size of each block" },
        h(
          "div",
          { class: "choices" },
          select(
            "Length",
            choices.map(([key, one]) => [key, one.label]),
            value => {
              measure = value;
            },
          ),
          select(
            "Colour",
            [
              ["kind", "Kind"],
              ["dtype", "Numeric type"],
            ],
            value => {
              by = value;
            },
          ),
        ),
        legend,
        chart.element,
      ),
      h("section", { class: "panel model-table", "aria-label": "Layers" }, which, table.element),
      details,
    ),
  );
  filter();
  drawLegend();
  redraw();
  return {
    key: () => false,
    exports: () => ({
      svg: chart.svg,
      figures: () => [
        {
          kind: "lines",
          title: `${data.title}: ${MEASURES[measure].label.toLowerCase()} of each block`,
          xLabel: "block",
          yLabel: MEASURES[measure].label,
          log: false,
          series: families.map(({ name, colour }) => ({
            name,
            colour,
            x: data.blocks.map((_, i) => i),
            y: data.blocks.map((_, i) =>
              rows.filter(row => row.block === i && data.families[row.family] === name).reduce((sum, row) => sum + MEASURES[measure].of(row), 0),
            ),
          })),
        },
      ],
    }),
    destroy() {
      chart.destroy();
      table.destroy();
      app.tooltip.hide();
    },
  };
}
