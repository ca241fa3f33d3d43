// The list of acts: undo, redo, and the list as a Python script or a file.
import { h } from "../elements.js";
import { saveFile } from "../save_file.js";

const LISTED = 200; // most acts that are listed

/** Mount the part; returns {update()}. */
export function mountHistory(panel, { state, act, app }) {
    const undo = h("button", { type: "button", title: "Undo (U)", onclick: () => act({ do: "undo" }) }, "Undo");
    const redo = h("button", { type: "button", title: "Redo (R)", onclick: () => act({ do: "redo" }) }, "Redo");
    const list = h("ol", { class: "sculpt-acts", tabindex: 0, "aria-label": "What was done" });
    async function script(form) {
        return (await act({ do: "script", form }, { quiet: true }))?.text ?? null;
    }
    async function copy() {
        const text = await script("python");
        if (text === null) return;
        try {
            await navigator.clipboard.writeText(text);
            app.announce("The Python script is in the clipboard.");
        } catch {
            save(text, "replay.py");
        }
    }
    function save(text, name) {
        saveFile(name, text, "text/plain");
        app.announce(`The browser saves ${name}.`);
    }
    const download = async (form, name) => {
        const text = await script(form);
        if (text !== null) save(text, name);
    };
    panel.append(
        h(
            "div",
            { class: "sculpt-part" },
            h("h2", {}, "What was done"),
            h(
                "div",
                { class: "sculpt-line" },
                undo,
                redo,
                h("button", { type: "button", title: "Reset all states", onclick: () => act({ do: "reset" }) }, "Reset all"),
            ),
            list,
            h(
                "div",
                { class: "sculpt-line" },
                h("button", { type: "button", title: "Copy a script that repeats all this", onclick: copy }, "Copy as Python"),
                h(
                    "button",
                    {
                        type: "button",
                        title: "Save the list for volumetric.scope.sculpting.replay",
                        onclick: () => download("json", "sculpting.json"),
                    },
                    "Save list",
                ),
            ),
        ),
    );
    return {
        update() {
            const { done, undone } = state.history;
            undo.disabled = !done.length;
            redo.disabled = !undone.length;
            undo.title = done.length ? `Undo (U): ${done.at(-1)}` : "Undo (U)";
            redo.title = undone.length ? `Redo (R): ${undone[0]}` : "Redo (R)";
            const left = done.length - LISTED;
            list.replaceChildren(
                ...(left > 0 ? [h("li", { class: "dim" }, `${left.toLocaleString("en")} earlier acts`)] : []),
                ...done.slice(-LISTED).map(text => h("li", {}, text)),
                ...undone.slice(0, LISTED).map(text => h("li", { class: "sculpt-undone" }, text)),
            );
            if (!done.length && !undone.length) list.replaceChildren(h("li", { class: "dim" }, "nothing yet"));
            list.scrollTop = list.scrollHeight;
        },
    };
}
