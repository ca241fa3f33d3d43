// Changes of a stream that runs behind the page: what to do with the chosen node, inputs, time, and a list for undoing.
import { messageArray } from "../document.js";
import { h } from "../elements.js";
import { mountChosen } from "./chosen_panel.js";
import { mountHistory } from "./history_panel.js";
import { mountInputs } from "./inputs_panel.js";
import { mountTransport } from "./transport_panel.js";

const KEYS = [
    ["g", "run or pause"],
    ["n", "one tick on"],
    ["m", "mask or unmask what is chosen"],
    ["x", "cut its edges"],
    ["c", "add an edge from it to the next node that is chosen"],
    ["u", "undo"],
    ["r", "redo"],
];

/** Mount the panel; null where no stream runs. `context` is that of views/scene.js. */
export function mountSculptor(element, context) {
    const { app, data, view, renderer } = context,
        about = data.sculpt;
    if (!app.live || !about) return null;
    const parts = [],
        state = { mask: null, history: { done: [], undone: [] }, clamps: {}, saved: [], twin: false, running: false, t: 0 };
    let number = -1,
        furthest = 0,
        from = null;

    /** Ask the program for an act; its sentence is shown, an error as well. Returns its answer, or null. */
    async function act(action, { quiet = false } = {}) {
        try {
            const answer = await app.live.act(view.name, action);
            if (!quiet) app.announce(answer.text);
            return answer;
        } catch (error) {
            app.notify(error.message);
            return null;
        }
    }
    const sculptor = {
        about,
        state,
        act,
        app,
        data,
        view,
        renderer,
        name: node => data.scene.names[node],
        /** The chosen node, or null; a link may name one that does not exist. */
        chosen: () => (data.scene.names[app.selection.value] === undefined ? null : app.selection.value),
        /** Ask for the node that an edge should lead to: the next one that is chosen. */
        connectFrom(node) {
            from = node;
            if (node !== null) app.announce(`Choose the node that ${sculptor.name(node)} should send to. Escape: none.`);
            for (const part of parts) part.update?.();
        },
        get connecting() {
            return from;
        },
    };
    const keys = h(
        "details",
        { class: "sculpt-keys" },
        h("summary", {}, "Keys"),
        h(
            "dl",
            {},
            KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key.toUpperCase())), h("dd", {}, what)]),
        ),
    );
    const panel = h("section", { class: "panel sculpt", "aria-label": "Sculpt the running network" });
    element.prepend(panel); // before the inspector, which grows with what is chosen
    parts.push(mountTransport(panel, sculptor), mountChosen(panel, sculptor), mountHistory(panel, sculptor), mountInputs(panel, sculptor));
    panel.append(keys);

    function structure(message) {
        if (!message.mask) return;
        state.mask = messageArray(message.mask).data;
        renderer.setMask?.(state.mask.includes(0) ? state.mask : null);
        if (message.changedEdges || state.changedEdges) {
            const edges = Object.fromEntries(Object.entries(message.edges).map(([key, of]) => [key, key === "kinds" ? of : messageArray(of)]));
            renderer.setEdges?.(edges);
            const there = messageArray(message.edgeMask).data;
            renderer.setEdgeMask?.(there.includes(0) ? there : null);
        }
        state.changedEdges = message.changedEdges;
    }
    function difference(message) {
        if (!message.difference) {
            renderer.setChannel?.("difference", null);
            return;
        }
        const values = messageArray(message.difference).data;
        for (const value of values) if (Math.abs(value) > furthest) furthest = Math.abs(value);
        const range = furthest || 1;
        renderer.setChannel?.("difference", {
            values,
            range: [-range, range],
            label: "difference from the untouched twin",
            unit: "of the group's largest value",
        });
        state.largest = values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
    }
    function receive(message) {
        if (message.kind === "frame") {
            state.t = message.t;
            if (state.twin || message.difference) difference(message);
            for (const part of parts) part.frame?.();
            return;
        }
        if (message.kind === "changed" && message.number <= number) return; // older than the snapshot
        const { kind, view: of, mask, edges, edgeMask, ...plain } = message;
        if (message.number !== undefined) number = message.number;
        if (plain.twin === false && state.twin) {
            furthest = 0;
            difference({});
        }
        const failed = message.error && message.error !== state.error;
        Object.assign(state, plain);
        if (failed) app.notify(message.error);
        structure(message);
        for (const part of parts) part.update?.();
        if (kind === "changed" && message.text) app.announce(message.text);
    }
    // A view that is shown again gets what it missed: the last snapshot, and what came after it.
    for (const kind of ["snapshot", "changed", "status", "frame"]) {
        const message = app.live.latest(view.name, kind);
        if (message) receive(message);
    }
    const off = app.live.on(view.name, receive);
    const chosen = app.selection.subscribe(node => {
        if (from !== null && node !== null && node !== from) {
            const source = from;
            from = null;
            act({ do: "connect", source, target: node });
        }
        for (const part of parts) part.choose?.(sculptor.chosen());
    });
    for (const part of parts) part.choose?.(sculptor.chosen());

    const node = sculptor.chosen;
    const commands = {
        g: () => act({ do: state.running ? "pause" : "run" }),
        n: () => act({ do: "step" }),
        m: () => node() !== null && act({ do: state.mask?.[node()] === 0 ? "unmask" : "mask", nodes: [node()] }),
        x: () => node() !== null && act({ do: "cut", nodes: [node()] }),
        c: () => node() !== null && sculptor.connectFrom(node()),
        u: () => act({ do: "undo" }),
        r: () => act({ do: "redo" }),
    };
    return {
        sculptor,
        key(event) {
            if (event.key === "Escape" && from !== null) {
                sculptor.connectFrom(null);
                app.announce("No edge is added.");
                return true;
            }
            const command = commands[event.key.toLowerCase()];
            if (!command || event.shiftKey) return false;
            if ("mxc".includes(event.key.toLowerCase()) && node() === null) app.announce("Choose a node first.");
            command();
            return true;
        },
        destroy() {
            off();
            chosen();
            for (const part of parts) part.destroy?.();
            panel.remove();
        },
    };
}
