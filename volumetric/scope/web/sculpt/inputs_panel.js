// Inputs of the stream: numbers that are added for some ticks, or put in place of those of its rows.
import { h } from "../elements.js";

const FIELDS = 12; // inputs of more columns have one field for all numbers

/** Mount the part; returns {update()}. */
export function mountInputs(panel, { state, about, act, app }) {
    const parts = about.inputs.map(input => {
        const many = input.size > FIELDS,
            kind = input.ids ? "1" : "any";
        const fields = many
            ? [
                  h("input", {
                      type: "text",
                      class: "sculpt-wide",
                      "aria-label": `Numbers of input ${input.name}`,
                      placeholder: `1 number for all, or ${input.size.toLocaleString("en")}`,
                  }),
              ]
            : Array.from({ length: input.size }, (_, i) =>
                  h("input", { type: "number", step: kind, placeholder: "·", "aria-label": `Column ${i} of input ${input.name}` }),
              );
        const ticks = h("input", { type: "number", min: 1, max: 1000000, value: 1, "aria-label": `Ticks of the pulse into ${input.name}` });
        const now = h("span", { class: "dim" });
        function values() {
            const texts = many ? fields[0].value.split(/[\s,;]+/).filter(Boolean) : fields.map(field => field.value.trim());
            const numbers = texts.map(text => (text === "" || text === "·" ? null : Number(text)));
            if (!numbers.length || numbers.every(one => one === null)) {
                app.notify(`Write a number into a column of input ${input.name} first.`);
                return null;
            }
            if (numbers.some(one => Number.isNaN(one))) {
                app.notify(`The numbers of input ${input.name} are not all numbers.`);
                return null;
            }
            return many && numbers.length === 1 ? numbers[0] : numbers;
        }
        function send(what, more = {}) {
            const numbers = values();
            if (numbers !== null) act({ do: what, name: input.name, values: numbers, ...more });
        }
        const length = () => Math.max(1, Math.round(Number(ticks.value)) || 1);
        const release = h("button", { type: "button", onclick: () => act({ do: "release", name: input.name }) }, "Release");
        const element = h(
            "fieldset",
            {},
            h("legend", {}, input.name, now),
            h("div", { class: many ? "" : "sculpt-columns" }, fields),
            h(
                "div",
                { class: "sculpt-line" },
                input.ids
                    ? null
                    : h(
                          "button",
                          { type: "button", title: "Add these numbers for some ticks", onclick: () => send("inject", { ticks: length() }) },
                          "Inject",
                      ),
                input.ids ? null : ticks,
                h("button", { type: "button", title: "Put these numbers in place of those of the rows", onclick: () => send("clamp") }, "Clamp"),
                release,
            ),
        );
        function update() {
            const clamped = Object.hasOwn(state.clamps, input.name);
            now.textContent = clamped ? " clamped" : "";
            release.disabled = !clamped;
        }
        return { element, update };
    });
    panel.append(
        h(
            "details",
            { class: "sculpt-part", open: about.inputs.length <= 2 },
            h("summary", {}, "Inputs"),
            parts.map(one => one.element),
        ),
    );
    return {
        update() {
            for (const part of parts) part.update();
        },
    };
}
