// A table that is sorted by a press on the head of a column; the arrow keys walk through its rows.
import { h } from "../elements.js";

/**
 * Return {element, update(rows), choose(row or null), destroy()}.
 *
 * columns: [{label, title?, number?: true, value(row) → number, text or null, cell?(row) → text or element}]; numbers sort from the
 * largest down at the first press. options: {label, rowLabel(row), onPick(row), onHover(row or null, event), sort: [column, down], few}
 * With more than `few` rows (300), the first are shown, and a button shows the others.
 */
export function sortableTable(columns, rows, options = {}) {
  const few = options.few ?? 300;
  let current = rows,
    chosen = null,
    whole = false,
    [column, down] = options.sort ?? [null, false];
  const head = h("tr"),
    body = h("tbody"),
    more = h("button", {
      type: "button",
      class: "more-rows",
      onclick() {
        whole = true;
        draw();
      },
    });
  const table = h("table", { class: "sortable", "aria-label": options.label }, h("thead", {}, head), body);
  const element = h("div", { class: "table-box" }, table, more);
  const heads = columns.map((one, i) => {
    const cell = h(
      "th",
      { scope: "col", class: one.number ? "number" : null },
      h(
        "button",
        {
          type: "button",
          title: one.title ?? `Sort by ${one.label}`,
          onclick() {
            if (column === i) down = !down;
            else [column, down] = [i, Boolean(one.number)];
            draw();
          },
        },
        one.label,
      ),
    );
    head.append(cell);
    return cell;
  });
  const order = (a, b) => {
    const [x, y] = [columns[column].value(a), columns[column].value(b)];
    const gone = value => value === null || value === undefined || Number.isNaN(value);
    if (gone(x) || gone(y)) return gone(x) - gone(y); // what is not known comes last, whatever the direction
    const sign = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return down ? -sign : sign;
  };
  function draw() {
    heads.forEach((cell, i) => cell.setAttribute("aria-sort", i === column ? (down ? "descending" : "ascending") : "none"));
    const sorted = column === null ? current : [...current].sort(order);
    const shown = whole ? sorted : sorted.slice(0, few);
    body.replaceChildren(
      ...shown.map((row, i) => {
        const line = h(
          "tr",
          {
            tabindex: (chosen === null || !shown.includes(chosen) ? i === 0 : row === chosen) ? 0 : -1,
            "aria-selected": String(row === chosen),
            "aria-label": options.rowLabel?.(row),
            onclick() {
              pick(row);
            },
            onpointermove(event) {
              options.onHover?.(row, event);
            },
            onpointerleave(event) {
              options.onHover?.(null, event);
            },
          },
          columns.map(one => h("td", { class: one.number ? "number" : null }, one.cell ? one.cell(row) : String(one.value(row) ?? ""))),
        );
        line.row = row;
        return line;
      }),
    );
    more.hidden = shown.length === sorted.length;
    more.textContent = `Show all ${sorted.length.toLocaleString("en")} rows`;
  }
  function mark() {
    for (const line of body.children) {
      line.setAttribute("aria-selected", String(line.row === chosen));
      line.tabIndex = line.row === chosen ? 0 : -1;
    }
    if (!body.querySelector('[tabindex="0"]') && body.firstChild) body.firstChild.tabIndex = 0;
  }
  function pick(row) {
    chosen = row;
    mark();
    options.onPick?.(row);
  }
  body.addEventListener("keydown", event => {
    const line = event.target.closest("tr"),
      next = { ArrowDown: line?.nextSibling, ArrowUp: line?.previousSibling, Home: body.firstChild, End: body.lastChild }[event.key];
    if (event.key === "Enter" && line) pick(line.row);
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    line.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  draw();
  return {
    element,
    update(next) {
      current = next;
      whole = false;
      if (!next.includes(chosen)) chosen = null;
      draw();
    },
    choose(row) {
      chosen = row;
      mark();
      [...body.children].find(line => line.row === row)?.scrollIntoView({ block: "nearest" });
    },
    destroy() {
      element.remove();
    },
  };
}
