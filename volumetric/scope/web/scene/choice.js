// Which node of a scene is chosen, and which one is pointed at.
import { LOOK } from "./node_tables.js";

/** Return {chosen, hovered, select(node or null), hover(node or null)}; `draw()` is called when one changes. */
export function makeChoice(nodes, draw) {
  let chosen = null,
    hovered = null,
    marked = [];
  function mark() {
    for (const node of marked) nodes.looks[4 * node + 3] &= ~(LOOK.chosen | LOOK.hovered);
    marked = [chosen, hovered].filter(node => node !== null);
    if (hovered !== null) nodes.looks[4 * hovered + 3] |= LOOK.hovered;
    if (chosen !== null) nodes.looks[4 * chosen + 3] |= LOOK.chosen;
    nodes.changed("looks");
    draw();
  }
  return {
    get chosen() {
      return chosen;
    },
    get hovered() {
      return hovered;
    },
    select(node) {
      chosen = node !== null && node >= 0 && node < nodes.count ? node : null;
      mark();
    },
    hover(node) {
      if (node === hovered) return;
      hovered = node;
      mark();
    },
  };
}
