// Which generation is shown: a slider, play, and steps from one structure of the best genome to the next.
import { button, h, short } from "../elements.js";

const PER_SECOND = [2, 8, 24, 80];

/** Return {element, set(generation), update(), key(event), destroy()}; `generation` is an observable, the chosen one. */
export function mountTimeline(store, app, generation) {
  const slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Generation", oninput: () => go(Number(slider.value)) });
  const play = button("▶", "Play", () => toggle(), { class: "play" });
  const speed = h("select", { "aria-label": "Generations a second" }, ...PER_SECOND.map(n => h("option", { value: n, selected: n === 8 }, `${n}/s`)));
  const changes = h("datalist", { id: "evolution-changes" });
  slider.setAttribute("list", "evolution-changes");
  const text = h("output", { class: "number timeline-text" });
  const live = h("span", { class: "live", hidden: true }, "live");
  const element = h(
    "div",
    { class: "timeline", role: "group", "aria-label": "Generations" },
    play,
    button("⇤", "Earlier structure of the best genome", () => change(-1)),
    button("⇥", "Next structure of the best genome", () => change(1)),
    slider,
    changes,
    text,
    live,
    speed,
  );
  let timer = 0,
    following = !app.state.get("gen");

  const last = () => Math.max(0, store.rows.length - 1);
  const place = () => store.place(generation.value);
  function go(at) {
    const row = store.rows[Math.max(0, Math.min(last(), at))];
    following = at >= last();
    if (row) generation.set(row.generation);
  }
  function change(step) {
    const at = store.championAt(generation.value),
      current = store.champions[at];
    const next = step < 0 && current && current.generation < generation.value ? current : store.champions[at + step];
    if (next) go(store.place(next.generation));
    else app.announce("there is none");
  }
  function toggle(on = !timer) {
    clearInterval(timer);
    timer = 0;
    if (on && place() >= last()) go(0);
    if (on) {
      timer = setInterval(
        () => {
          if (place() >= last()) {
            if (!store.running) toggle(false);
          } else go(place() + 1);
        },
        1000 / Number(speed.value),
      );
    }
    play.textContent = on ? "❚❚" : "▶";
    play.title = on ? "Pause" : "Play";
    play.setAttribute("aria-label", play.title);
  }
  speed.addEventListener("change", () => {
    if (timer) toggle(true);
  });
  function tell() {
    const row = store.rows[place()];
    slider.value = place();
    text.textContent = row ? `generation ${row.generation} · best ${short(row.best)}` : "waiting for the first generation";
    slider.setAttribute("aria-valuetext", text.textContent);
  }
  const off = generation.subscribe(tell);
  return {
    element,
    /** Take new rows; show the newest one where the last one was shown. */
    update() {
      slider.max = last();
      live.hidden = !store.running;
      changes.replaceChildren(...store.champions.slice(0, 100).map(one => h("option", { value: store.place(one.generation) })));
      if (following && app.live && !timer) go(last());
      tell();
    },
    key(event) {
      const act = {
        " ": () => toggle(),
        ArrowLeft: () => go(place() - 1),
        ArrowRight: () => go(place() + 1),
        Home: () => go(0),
        End: () => go(last()),
        "[": () => change(-1),
        "]": () => change(1),
      }[event.key];
      if (!act || (event.key === " " && event.target.closest?.("button, select"))) return false;
      act();
      return true;
    },
    destroy() {
      clearInterval(timer);
      off();
      element.remove();
    },
  };
}
