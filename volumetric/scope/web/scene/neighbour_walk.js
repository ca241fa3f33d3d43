// Goes through the neighbours of the chosen node by keys: [ and ] name one after the other, Enter goes there.

/** Return {key(event), forget()}. */
export function neighbourWalk({ renderer, tables, app }) {
  let list = [],
    at = -1,
    from = null;
  function read(node) {
    const { source, target, delay } = renderer.edges,
      { incoming, outgoing } = renderer.neighbours(node),
      ends = [];
    for (const edge of outgoing) ends.push({ node: target.data[edge], way: "to", delay: delay.data[edge] });
    for (const edge of incoming) ends.push({ node: source.data[edge], way: "from", delay: delay.data[edge] });
    return ends;
  }
  return {
    key(event) {
      const step = { "]": 1, "[": -1 }[event.key];
      if (event.key === "Enter" && at >= 0 && from === app.selection.value && event.target === renderer.canvas) {
        const { node } = list[at];
        app.selection.set(node);
        renderer.focus(node);
        return true;
      }
      if (!step) return false;
      if (app.selection.value === null) {
        if (renderer.count) app.selection.set(Object.values(tables.ports)[0]?.node ?? 0);
        return true;
      }
      if (from !== app.selection.value) {
        from = app.selection.value;
        list = read(from);
        at = step > 0 ? -1 : 0;
      }
      if (!list.length) {
        app.announce(`${tables.names[from]} has no edges`);
        return true;
      }
      at = (at + step + list.length) % list.length;
      const { node, way, delay } = list[at];
      renderer.point(node);
      app.announce(`${at + 1} of ${list.length}: ${way} ${tables.names[node]}${delay ? `, delay ${delay}` : ""}. Enter goes there.`);
      return true;
    },
    forget() {
      at = -1;
      from = null;
    },
  };
}
