// The genealogy: genomes by generation from left to right, the ancestors of a chosen one drawn out, all others faint.
import { pointer, select, zoom, zoomIdentity } from "../vendor/d3.min.js";
import { svgBrush } from "../charts/svg_brush.js";
import { button, h, short } from "../elements.js";
import { ancestorsOf, descendantsOf, gatherGenomes } from "./ancestry.js";
import { lineagePainter } from "./lineage_painter.js";

/** Return {element, canvas, update(), setGeneration(generation), highlight(species), choose(id), destroy()}. */
export function mountLineage(store, app, context) {
  const canvas = h("canvas", { class: "lineage-canvas", tabindex: 0, role: "application", "aria-label": "Genealogy" });
  const about = h("div", { class: "lineage-about", "aria-live": "polite" });
  const mode = h(
    "select",
    { "aria-label": "What is drawn out", onchange: () => trace() },
    ...[
      ["ancestors", "ancestors"],
      ["descendants", "descendants"],
      ["both", "both"],
    ].map(([value, text]) => h("option", { value }, text)),
  );
  const follow = button(
    "best",
    "Follow the best genome of the shown generation",
    () => {
      pinned = false;
      choose(bestPlace());
    },
    { "aria-pressed": "true" },
  );
  const bar = h(
    "div",
    { class: "panel-tools" },
    mode,
    follow,
    button("−", "Zoom out", () => zoomBy(1 / 1.6)),
    button("+", "Zoom in", () => zoomBy(1.6)),
    button("fit", "Fit the whole run", () => fit()),
  );
  const element = h("div", { class: "lineage" }, h("div", { class: "lineage-stage" }, canvas), about);
  let genomes = gatherGenomes(store),
    chosen = -1,
    hovered = -1,
    traced = ancestorsOf(genomes, -1),
    generation = 0,
    species = null,
    pinned = false;
  let transform = zoomIdentity,
    width = 300,
    height = 200,
    waiting = 0;

  let colours = {};
  /** What is drawn, for the painter. */
  const picture = {
    store,
    get genomes() {
      return genomes;
    },
    get traced() {
      return traced;
    },
    get transform() {
      return transform;
    },
    get width() {
      return width;
    },
    get height() {
      return height;
    },
    get species() {
      return species;
    },
    get generation() {
      return generation;
    },
    get hovered() {
      return hovered;
    },
    get chosen() {
      return chosen;
    },
    get colours() {
      return colours;
    },
    get theme() {
      return app.dark.value;
    },
  };
  const painter = lineagePainter(picture);
  const { x, y } = painter;
  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(["front", "dim", "line", "accent", "panel"].map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
  };
  const bestPlace = () => genomes.find(store.rows[store.place(generation)]?.bestGenome ?? -1);

  function trace() {
    const back = mode.value !== "descendants" ? ancestorsOf(genomes, chosen) : null;
    const forth = mode.value !== "ancestors" ? descendantsOf(genomes, chosen) : null;
    traced =
      back && forth
        ? { share: back.share.map((value, i) => value || forth.share[i]), members: [...back.members, ...forth.members.slice(1)], line: back.line }
        : (back ?? forth);
    follow.setAttribute("aria-pressed", !pinned);
    describe(back, forth);
    draw();
  }
  function choose(place, by = "") {
    chosen = place;
    app.state.set("genome", pinned && place >= 0 ? genomes.ids[place] : "");
    trace();
    if (by && place >= 0) app.announce(sentence(place));
    context.onChoose?.(place < 0 ? null : { id: genomes.ids[place], generation: store.rows[genomes.row[place]].generation });
  }
  const pick = (place, by) => {
    pinned = true;
    choose(place, by);
  };

  function sentence(place) {
    const [a, b] = parentsOf(place),
      born = store.kinds[genomes.kinds[place]];
    const from = a < 0 ? "" : ` of ${genomes.ids[a]}${b < 0 ? "" : ` and ${genomes.ids[b]}`}`;
    const kin = genomes.species[place] < 0 ? "" : `species ${genomes.species[place]}, `;
    const birth = born === "first" ? "without known parents" : `by ${born}${from}`;
    return (
      `genome ${genomes.ids[place]}, generation ${store.rows[genomes.row[place]].generation}, ${kin}fitness ${short(genomes.fitness[place])}, ` +
      `${genomes.sizes[2 * place]} ${store.sizeNames[0]} and ${genomes.sizes[2 * place + 1]} ${store.sizeNames[1]}, ${birth}`
    );
  }
  const parentsOf = place => [genomes.parents[2 * place], genomes.parents[2 * place + 1]];
  function describe(back, forth) {
    if (chosen < 0) {
      about.replaceChildren("Click a genome to see whom it descends from.");
      return;
    }
    const counts = [
      back && `${(back.members.length - 1).toLocaleString("en")} ancestors`,
      forth && `${(forth.members.length - 1).toLocaleString("en")} descendants`,
    ];
    about.replaceChildren(
      h("span", {}, `${sentence(chosen)[0].toUpperCase()}${sentence(chosen).slice(1)}; ${counts.filter(Boolean).join(", ")}.`),
      ...parentsOf(chosen)
        .filter(place => place >= 0)
        .map((place, i) =>
          h(
            "button",
            { type: "button", class: "link", onclick: () => pick(place, "button") },
            i ? `other parent ${genomes.ids[place]}` : `parent ${genomes.ids[place]}`,
          ),
        ),
    );
  }

  function draw() {
    if (waiting) return;
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      paintCanvas();
    });
  }
  function paintCanvas() {
    const ratio = devicePixelRatio || 1,
      brush = canvas.getContext("2d", { willReadFrequently: true }); // strokes on the processor, at once
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.drawImage(painter.siblings(ratio), 0, 0, width, height);
    painter.paint(brush);
    canvas.dataset.members = traced.members.length;
    canvas.dataset.genomes = genomes.count;
  }
  function nearest([px, py]) {
    let best = -1,
      distance = 18 ** 2;
    const r0 = painter.rowAt(px);
    for (let r = Math.max(0, Math.floor(r0) - 3); r <= Math.min(store.rows.length - 1, Math.ceil(r0) + 3); r++) {
      for (let i = genomes.rowStart[r]; i < genomes.rowStart[r + 1]; i++) {
        const d = ((x(r) - px) ** 2 + (y(i) - py) ** 2) * (traced.share[i] ? 0.3 : 1); // those drawn out are easier to hit
        if (d < distance) {
          distance = d;
          best = i;
        }
      }
    }
    return best;
  }
  const behaviour = zoom()
    .scaleExtent([1, 400])
    .clickDistance(4)
    .filter(event =>
      event.type === "wheel"
        ? event.ctrlKey || document.activeElement === canvas
        : !event.button && (event.type !== "touchstart" || event.touches.length > 1 || document.activeElement === canvas),
    )
    .on("zoom", event => {
      transform = event.transform;
      draw();
    });
  const zoomed = select(canvas).call(behaviour).on("dblclick.zoom", null);
  const zoomBy = factor => zoomed.call(behaviour.scaleBy, factor, chosen >= 0 ? [x(genomes.row[chosen]), y(chosen)] : undefined);
  const fit = () => zoomed.call(behaviour.transform, zoomIdentity);
  canvas.addEventListener("pointermove", event => {
    hovered = nearest(pointer(event, canvas));
    if (hovered < 0) app.tooltip.hide();
    else app.tooltip.show(event.clientX, event.clientY, sentence(hovered).replaceAll(", ", "\n"));
    draw();
  });
  canvas.addEventListener("pointerleave", () => {
    hovered = -1;
    app.tooltip.hide();
    draw();
  });
  canvas.addEventListener("click", event => {
    const place = nearest(pointer(event, canvas));
    if (place >= 0) pick(place, "click");
  });
  canvas.addEventListener("keydown", event => {
    const act = {
      ArrowLeft: () => parentsOf(chosen)[0],
      ArrowUp: () => sibling(-1),
      ArrowDown: () => sibling(1),
      ArrowRight: () => bestChild(),
      p: () => parentsOf(chosen)[1],
    }[event.key];
    const view = { "+": () => zoomBy(1.6), "=": () => zoomBy(1.6), "-": () => zoomBy(1 / 1.6), 0: fit }[event.key];
    if (!act && !view) return;
    event.preventDefault();
    event.stopPropagation();
    if (view) {
      view();
      return;
    }
    const next = chosen < 0 ? bestPlace() : act();
    if (next >= 0) {
      pick(next, "key");
      reveal();
    } else app.announce("there is none");
  });
  function sibling(step) {
    const r = genomes.row[chosen],
      mates = Array.from({ length: genomes.rowStart[r + 1] - genomes.rowStart[r] }, (_, i) => genomes.rowStart[r] + i);
    mates.sort((a, b) => genomes.y[a] - genomes.y[b]);
    return mates[mates.indexOf(chosen) + step] ?? -1;
  }
  function bestChild() {
    let best = -1;
    for (let i = chosen + 1; i < genomes.count; i++) {
      if (best >= 0 && genomes.row[i] > genomes.row[best]) break;
      if (parentsOf(i).includes(chosen) && (best < 0 || genomes.fitness[i] > genomes.fitness[best] !== store.lower)) best = i;
    }
    return best;
  }
  /** Move the chosen genome into the picture. */
  function reveal() {
    const px = x(genomes.row[chosen]),
      py = y(chosen);
    if (px < 0 || px > width || py < 0 || py > height) {
      zoomed.call(behaviour.translateTo, ...transform.invert([px, py]));
    }
  }

  const watcher = new ResizeObserver(() => {
    const before = { width, height };
    width = Math.max(120, canvas.parentElement.clientWidth);
    height = Math.max(120, canvas.parentElement.clientHeight);
    const whole = [
      [0, 0],
      [width, height],
    ];
    behaviour.extent(whole).translateExtent(whole);
    const { k } = transform; // what was in the middle stays there
    const to = zoomIdentity.translate((transform.x * width) / before.width, (transform.y * height) / before.height).scale(k);
    zoomed.call(behaviour.transform, to);
    draw();
  });
  watcher.observe(canvas.parentElement);
  const themed = app.dark.subscribe(() => {
    readColours();
    draw();
  });
  readColours();
  return {
    element,
    canvas,
    bar,
    /** Take new rows of the store. */
    update() {
      const id = chosen >= 0 ? genomes.ids[chosen] : null;
      genomes = genomes.version === store.version ? genomes.extend() : gatherGenomes(store);
      chosen = id === null ? -1 : genomes.find(id);
      trace();
    },
    setGeneration(next) {
      generation = next;
      if (pinned) draw();
      else choose(bestPlace());
    },
    highlight(id) {
      species = id;
      draw();
    },
    choose(id) {
      const place = genomes.find(id);
      if (place >= 0) pick(place, "");
      return place >= 0;
    },
    /** What is drawn, as SVG without the faint siblings. */
    svg() {
      const brush = svgBrush(width, height);
      brush.fillStyle = colours.panel;
      brush.fillRect(0, 0, width, height);
      painter.paint(brush);
      return brush.text();
    },
    get chosen() {
      return chosen < 0 ? null : genomes.ids[chosen];
    },
    /** Where a genome is drawn, in pixels of the canvas; for scripts that drive the page. */
    position(id) {
      const place = genomes.find(id);
      return place < 0 ? null : [x(genomes.row[place]), y(place)];
    },
    destroy() {
      watcher.disconnect();
      themed();
      cancelAnimationFrame(waiting);
      element.remove();
    },
  };
}
