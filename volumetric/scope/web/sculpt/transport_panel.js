// Time of the stream that runs: run, pause, step, rate, saved states, and the untouched twin.
import { button, h, short } from "../elements.js";

const RATES = [
    ["1", 1],
    ["5", 5],
    ["10", 10],
    ["30", 30],
    ["100", 100],
    ["1,000", 1000],
    ["no limit", null],
];

/** Mount the part; returns {update(), frame()}. */
export function mountTransport(panel, { state, about, act }) {
    const unit = about.ticking ? "ticks" : "rows";
    const run = button("▶", "Run", () => act({ do: state.running ? "pause" : "run" }), { class: "sculpt-run" });
    const count = h("input", { type: "number", min: 1, max: 1000000, value: 1, "aria-label": `Number of ${unit} of a step` });
    const ahead = () => act({ do: "step", count: Math.max(1, Math.round(Number(count.value)) || 1) });
    const step = h("button", { type: "button", onclick: ahead }, "Step");
    const rate = h("select", { "aria-label": `Rate in ${unit} a second`, onchange: () => act({ do: "rate", rate: JSON.parse(rate.value) }) });
    for (const [text, value] of RATES) rate.append(h("option", { value: JSON.stringify(value) }, value === null ? text : `${text}/s`));
    const tick = h("strong", { class: "number" }),
        speed = h("span", { class: "dim number" });
    const failure = h("p", { class: "sculpt-failure", role: "alert", hidden: true });
    const name = h("input", { type: "text", maxlength: 64, value: "start", "aria-label": "Name of the state to save", class: "sculpt-name" });
    const saved = h("select", { "aria-label": "Saved state" });
    const rewind = h("button", { type: "button", onclick: () => act({ do: "rewind", name: saved.value }) }, "Rewind");
    const past = h("div", { class: "sculpt-line" }, rewind, saved);
    const twin = h("input", { type: "checkbox", onchange: () => act({ do: twin.checked ? "start_twin" : "stop_twin" }) });
    const cost = h("span", { class: "dim" });
    panel.append(
        h("h2", {}, "Running network"),
        h("div", { class: "sculpt-line" }, run, step, count, rate),
        h("p", { class: "sculpt-tick", title: `The rows are ${about.source}` }, tick, speed),
        failure,
        h(
            "div",
            { class: "sculpt-line" },
            h(
                "button",
                { type: "button", title: "Save the states of now in memory", onclick: () => act({ do: "save_state", name: name.value }) },
                "Save state",
            ),
            name,
        ),
        past,
        h(
            "label",
            { class: "sculpt-check", title: "The original network on the same rows, from now: what differs is a colour of the scene" },
            twin,
            h("span", {}, "Untouched twin"),
            cost,
        ),
    );

    function frame() {
        tick.textContent = `${about.ticking ? "tick" : "row"} ${state.t.toLocaleString("en")}`;
        cost.textContent = state.twin ? `${Math.round(100 * (state.twinShare ?? 0))} % of the time; differs by ≤ ${short(state.largest ?? 0)}` : "";
    }
    return {
        frame,
        update() {
            run.textContent = state.running ? "❚❚" : "▶";
            run.setAttribute("aria-label", state.running ? "Pause" : "Run");
            run.title = state.running ? "Pause" : "Run";
            speed.textContent = state.running ? `${short(state.measured ?? 0)} ${unit}/s` : "paused";
            if (state.rate !== undefined) {
                const value = JSON.stringify(state.rate);
                if (![...rate.options].some(one => one.value === value)) rate.append(h("option", { value }, `${short(state.rate)}/s`));
                rate.value = value;
            }
            const chosen = saved.value;
            if ([...saved.options].map(one => one.value).join("\n") !== state.saved.join("\n")) {
                saved.replaceChildren(...state.saved.map(one => h("option", { value: one }, one)));
                saved.value = state.saved.includes(chosen) ? chosen : (state.saved.at(-1) ?? "");
            }
            past.hidden = !state.saved.length;
            twin.checked = state.twin;
            failure.hidden = !state.error;
            failure.textContent = state.error ?? "";
            frame();
        },
    };
}
