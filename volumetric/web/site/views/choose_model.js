// The page of a template, before there is a model: the visitor chooses a GGUF file, drops one, or names its address.
import { h } from "../elements.js";
import { forgetModel, load, storedModels } from "../engine.js";
import { loading, megabytes } from "../loading.js";

/**
 * Ask for a file until one is loaded; returns the model.
 * @param {HTMLElement} stage
 * @param {object} app of main.js
 * @param {object} options of `load`
 */
export function chooseModel(stage, app, options) {
  const like = document.title, input = h("input", { type: "file", id: "file", accept: ".gguf" });
  const address = h("input", { id: "address", name: "model", placeholder: "models/model.gguf", autocomplete: "off", spellcheck: "false", required: true });
  const stored = h("ul", { "aria-labelledby": "stored" }), section = h("div", { class: "stored" }, h("p", { class: "dim", id: "stored" }, "Stored in this browser"), stored);
  const form = h("form", { class: "address", "aria-label": "Load from an address" },
    h("label", { for: "address" }, `Or its address on ${location.host}`), address, h("button", {}, "Load"));
  const choice = h("section", { class: "card wide drop choice", "aria-label": "Choose a model" },
    h("p", {}, `This page runs GGUF files like “${like}”: of the same architecture, sizes and types of weights.`),
    h("label", { for: "file" }, "Open a file from your disk, or drop one here"), input, form,
    h("p", { class: "dim" }, "The file is read by your GPU, in this page. Nothing that you enter leaves it."), section);

  return new Promise(resolve => {
    const events = new AbortController(), on = (type, listener) => addEventListener(type, listener, { signal: events.signal });
    let stop = null; // of the file that is loading

    const begin = async (source, query = "") => {
      if (stop) return;
      stop = new AbortController();
      app.clear();
      const progress = loading(), button = h("button", { type: "button", onclick: () => stop.abort() }, "Stop");
      progress.element.append(h("p", { class: "file-name" }, source.name ?? source), button);
      stage.replaceChildren(progress.element);
      button.focus();
      try {
        const model = await load(source, { ...options, template: "./", signal: stop.signal, onProgress: progress.show });
        events.abort();
        history.replaceState(null, "", query || location.pathname);
        resolve(model);
      } catch (error) {
        stop = null;
        console.warn(error);
        show();
        app.fail(error);
      }
    };

    const open = text => {
      try {
        const url = new URL(text, document.baseURI);
        if (url.origin !== location.origin) throw new Error(`This page fetches files of ${location.host} alone. Download the file, and open it from your disk.`);
        void begin(url.href, `?${new URLSearchParams({ model: text })}`);
      } catch (error) {
        app.fail(error instanceof TypeError ? new Error(`${text} is not an address.`) : error);
      }
    };

    const row = ({ address: where, bytes, complete }) => {
      const name = h("span", { class: "file-name", title: where }, decodeURI(new URL(where).pathname)), size = h("span", { class: "dim number" }, `${megabytes(bytes)} MB${complete ? "" : ", in part"}`);
      const forget = async () => {
        try {
          await forgetModel(where);
        } catch (error) {
          app.fail(error);
        }
        await list();
      };
      return h("li", {}, name, size,
        h("button", { type: "button", "aria-label": `Load ${where}`, onclick: () => open(where) }, complete ? "Load" : "Go on"),
        h("button", { type: "button", "aria-label": `Forget ${where}`, onclick: forget }, "Forget"));
    };

    const list = async () => {
      const models = (await storedModels()).filter(one => !one.address.endsWith("/")); // folders are exports
      section.hidden = !models.length;
      stored.replaceChildren(...models.map(row));
    };

    const show = () => {
      stage.replaceChildren(choice);
      input.value = "";
      input.focus();
      document.documentElement.dataset.shown = "choose";
      void list();
    };

    input.addEventListener("change", () => input.files[0] && begin(input.files[0]));
    form.addEventListener("submit", event => {
      event.preventDefault();
      open(address.value.trim());
    });
    for (const type of ["dragover", "dragleave", "drop"]) {
      on(type, event => {
        event.preventDefault();
        choice.classList.toggle("over", type === "dragover");
        if (type === "drop" && event.dataTransfer.files[0]) void begin(event.dataTransfer.files[0]);
      });
    }
    on("keydown", event => event.key === "Escape" && stop?.abort());
    show();
    const named = new URLSearchParams(location.search).get("model");
    if (named) {
      address.value = named;
      open(named);
    }
  });
}
