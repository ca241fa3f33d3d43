// What the pointer does on a scene besides turning it: shows, chooses and goes to nodes.

const STILL = 5; // pixels up to which a press is a click, and no turn

/**
 * Watch the pointer on a canvas; returns {destroy()}. `pick(x, y)` says which node is at a place; `hover(node, event)`, `select(node)` and
 * `focus(node)` are called with a node or null.
 */
export function watchPointer(canvas, { pick, hover, select, focus }) {
  const at = event => {
    const box = canvas.getBoundingClientRect();
    return pick(event.clientX - box.left, event.clientY - box.top);
  };
  let down = null,
    looking = 0;
  canvas.addEventListener("pointerdown", event => {
    down = [event.clientX, event.clientY];
  });
  canvas.addEventListener("click", event => {
    if (!down || Math.hypot(event.clientX - down[0], event.clientY - down[1]) <= STILL) select(at(event));
  });
  canvas.addEventListener("dblclick", event => focus(at(event)));
  canvas.addEventListener("pointermove", event => {
    cancelAnimationFrame(looking);
    looking = requestAnimationFrame(() => hover(event.buttons ? null : at(event), event));
  });
  canvas.addEventListener("pointerleave", event => {
    cancelAnimationFrame(looking);
    hover(null, event);
  });
  return {
    destroy() {
      cancelAnimationFrame(looking);
    },
  };
}
