// What can be done with the chosen node or population: masks, edges, clocks, thresholds and states.
import { button, h, short } from "../elements.js";

const LISTED = 40; // most edges that are listed

/** Mount the part; returns {update(), choose(node)}. */
export function mountChosen(panel, sculptor) {
    const { state, about, act, app } = sculptor,
        populations = Object.entries(about.populations);
    const title = h("h2", {}),
        buttons = h("div", { class: "sculpt-line" }),
        more = h("div", { class: "sculpt-more" });
    const population = h(
        "select",
        { "aria-label": "Population" },
        populations.map(([name, count]) => h("option", { value: name }, `${name} (${count.toLocaleString("en")})`)),
    );
    const ofPopulation = [
        ["mask", "Mask"],
        ["unmask", "Unmask"],
        ["reset", "Reset"],
    ].map(([act_, text]) => h("button", { type: "button", onclick: () => act({ do: act_, population: population.value }) }, text));
    panel.append(
        h("div", { class: "sculpt-part" }, title, buttons, more),
        h("div", { class: "sculpt-line sculpt-population" }, population, ...ofPopulation),
    );
    const edgeName = node => h("button", { type: "button", class: "plain sculpt-node", onclick: () => app.selection.set(node) }, sculptor.name(node));
    let asked = 0,
        listed = null; // the node whose fields are shown

    /** A field was set: what it holds is not being written any more. */
    function done(field, answer) {
        if (answer) field.setAttribute("value", field.value);
        refresh();
    }
    function clockForm(about_, key) {
        if (!about_.clocked) return about_.numbers.length ? numbers(about_, key) : [];
        const field = h("input", {
            type: "text",
            maxlength: 1000,
            value: about_.clock ?? "",
            placeholder: "every tick",
            "aria-label": `Clock of ${about_.name}`,
            spellcheck: "false",
        });
        const set = () => act({ do: "set_clock", node: key, clock: field.value.trim() || null }).then(answer => done(field, answer));
        field.addEventListener("keydown", event => {
            if (event.key === "Enter") set();
        });
        return [h("label", { class: "sculpt-field" }, h("span", {}, "Clock"), field, button("✓", "Set the clock", set)), ...numbers(about_, key)];
    }
    function numbers(about_, key) {
        return about_.numbers.map(({ label, value }, number) => {
            const field = h("input", { type: "number", step: "any", value, "aria-label": `${label} of ${about_.name}` });
            const set = () => act({ do: "set_number", node: key, number, value: Number(field.value) }).then(answer => done(field, answer));
            field.addEventListener("keydown", event => {
                if (event.key === "Enter") set();
            });
            return h("label", { class: "sculpt-field" }, h("span", {}, label), field, button("✓", `Set ${label}`, set));
        });
    }
    function edgeList(edges) {
        if (!edges.length) return null;
        const rows = edges
            .slice(0, LISTED)
            .map(({ source, target, cut, added }) =>
                h(
                    "li",
                    { class: cut ? "sculpt-cut" : "" },
                    edgeName(source),
                    " → ",
                    edgeName(target),
                    added ? h("span", { class: "dim" }, " added") : null,
                    cut
                        ? button("↺", `Restore the edge from ${sculptor.name(source)} to ${sculptor.name(target)}`, () =>
                              act({ do: "connect", source, target }).then(refresh),
                          )
                        : button("✂", `Cut the edge from ${sculptor.name(source)} to ${sculptor.name(target)}`, () =>
                              act({ do: "cut", source, target }).then(refresh),
                          ),
                ),
            );
        const left = edges.length - LISTED;
        return h(
            "details",
            {},
            h("summary", {}, `${edges.length.toLocaleString("en")} edges`),
            h("ul", { class: "sculpt-edges" }, rows, left > 0 ? h("li", { class: "dim" }, `and ${left.toLocaleString("en")} more`) : null),
        );
    }
    function conditions(edges) {
        if (!edges.length) return null;
        return h(
            "details",
            {},
            h("summary", {}, "Conditions of edges"),
            edges.map(({ name, reads, when }) =>
                clockForm({ name: `edge ${name}`, clocked: true, clock: when, numbers: [] }, name).map(form => {
                    form.firstChild.textContent = `from ${reads}`;
                    return form;
                }),
            ),
        );
    }
    /** Show the fields of the chosen node; numbers that somebody writes stay until they are set. */
    async function refresh() {
        const node = sculptor.chosen(),
            turn = ++asked;
        if (node === null) {
            more.replaceChildren();
            listed = null;
            return;
        }
        const open = [...more.querySelectorAll("details")].map(one => one.open);
        const about_ = await act({ do: "node", node }, { quiet: true });
        if (turn !== asked || !about_) return;
        const written = [...more.querySelectorAll("input")].some(field => field.value !== field.defaultValue);
        if (written && listed === node) return;
        listed = node;
        const focused = more.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
        more.replaceChildren(...clockForm(about_, node), ...[edgeList(about_.edges), conditions(about_.own)].filter(Boolean));
        [...more.querySelectorAll("details")].forEach((one, i) => {
            one.open = open[i] ?? false;
        });
        if (focused) [...more.querySelectorAll("input, button")].find(one => one.getAttribute("aria-label") === focused)?.focus();
    }
    function choose(node) {
        if (node === null) {
            title.textContent = "No node is chosen";
            buttons.replaceChildren(h("span", { class: "dim" }, "Click a node of the scene."));
            more.replaceChildren();
            return;
        }
        const masked = state.mask?.[node] === 0,
            connecting = sculptor.connecting !== null;
        title.textContent = sculptor.name(node);
        if (masked) title.append(h("span", { class: "dim" }, " masked"));
        buttons.replaceChildren(
            h(
                "button",
                { type: "button", title: masked ? "Unmask (M)" : "Mask (M)", onclick: () => act({ do: masked ? "unmask" : "mask", nodes: [node] }) },
                masked ? "Unmask" : "Mask",
            ),
            h("button", { type: "button", title: "Cut its edges (X)", onclick: () => act({ do: "cut", nodes: [node] }) }, "Cut"),
            h(
                "button",
                {
                    type: "button",
                    title: "Add an edge to the next node that is chosen (C)",
                    "aria-pressed": connecting,
                    onclick: () => sculptor.connectFrom(connecting ? null : node),
                },
                connecting ? "Choose…" : "Connect",
            ),
            h("button", { type: "button", title: "Reset its states", onclick: () => act({ do: "reset", nodes: [node] }) }, "Reset"),
        );
    }
    let seen = -1;
    return {
        choose(node) {
            choose(node);
            refresh();
        },
        update() {
            choose(sculptor.chosen());
            if (state.number !== seen) {
                seen = state.number;
                refresh();
            }
        },
    };
}
