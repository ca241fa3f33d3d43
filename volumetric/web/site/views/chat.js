// A language model: a conversation, or the continuation of a text if it has no chat template.
import { h } from "../elements.js";
import { makeTalk } from "../talk.js";

export async function show(stage, model, app) {
  const { defaults = {}, chats: template, text: readsText } = model.info.language;
  const number = (id, label, more) => h("label", {}, label, h("input", { id, type: "number", ...more }));
  const settings = h("details", { id: "more" }, h("summary", {}, "Settings"),
    h("div", { class: "settings" },
      number("temperature", "Temperature", { min: 0, max: 2, step: .1, placeholder: defaults.temperature ?? "default" }),
      number("tokens", "Max tokens", { min: 1, placeholder: "no limit" }),
      number("seed", "Seed", { min: 0, step: 1, placeholder: "random" }),
      template ? h("label", {}, "System prompt", h("input", { id: "system", placeholder: "none" })) : null));
  const fresh = h("button", { type: "button", id: "new", "aria-label": template ? "New chat" : "New text" }, "New");
  app.tools.replaceChildren(settings, fresh);
  const word = template ? "Message" : "Beginning of a text";
  stage.replaceChildren(
    h("div", { id: "talk", role: "log", "aria-label": template ? "Conversation" : "Texts", tabindex: 0 }),
    h("form", { id: "ask" },
      h("textarea", { id: "text", rows: 1, placeholder: word, "aria-label": word, enterkeyhint: "send" }),
      h("button", { id: "send" }, template ? "Send" : "Continue"),
      h("button", { id: "stop", type: "button", "aria-keyshortcuts": "Escape", hidden: true }, "Stop")),
    h("output", { id: "speed", "aria-live": "off" }));
  const at = id => document.getElementById(id);
  const talk = makeTalk((messages, signal) => {
    const options = { signal, ...chosen(at) };
    const system = at("system")?.value;
    if (!readsText) return answer(idsAsText(model.generate(idsOf(messages.at(-1).content), options)));
    return answer(template ? model.chat([...(system ? [{ role: "system", content: system }] : []), ...messages], options)
      : model.generate(messages.at(-1).content, options));
  }, { empty: template ? "Your messages stay in this page: the model runs on your GPU." : readsText ? "The model has no chat template: it continues your text." : "The model has no tokenizer: write ids of tokens, such as 1 5 7." });
  fresh.addEventListener("click", () => { talk.begin(); at("text").focus(); });
  addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    if (settings.open) { settings.open = false; settings.firstElementChild.focus(); }
    else talk.stop();
  });
  addEventListener("pointerdown", event => { if (!settings.contains(event.target)) settings.open = false; });
  talk.begin();
  at("text").focus();
}

/** What the reader of the page has set. */
function chosen(at) {
  const number = id => (at(id).value === "" ? undefined : Number(at(id).value));
  const options = { temperature: number("temperature"), maxTokens: number("tokens"), seed: number("seed") };
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** Token ids that are written as numbers. */
function idsOf(text) {
  const ids = text.trim().split(/[\s,]+/).map(Number);
  if (!ids.every(Number.isSafeInteger)) throw new Error("Write ids of tokens as whole numbers, with spaces between them.");
  return ids;
}

async function* idsAsText(tokens) {
  for await (const token of tokens) yield { ...token, text: `${token.id} ` };
}

/** Pieces of an answer for the conversation; what stands between the marks of thinking is a thought. */
async function* answer(pieces) {
  let held = "", thinking = false;
  for await (const piece of pieces) {
    held += piece.text;
    for (;;) {
      const mark = thinking ? "</think>" : "<think>", place = held.indexOf(mark);
      if (place < 0) break;
      yield { [thinking ? "thought" : "text"]: held.slice(0, place) };
      held = held.slice(place + mark.length);
      thinking = !thinking;
    }
    const cut = partial(held, thinking ? "</think>" : "<think>");
    if (cut) yield { [thinking ? "thought" : "text"]: held.slice(0, cut) };
    held = held.slice(cut);
    if (piece.finishReason) yield { cut: piece.finishReason === "length", tokens: piece.stats?.tokens };
  }
  if (held) yield { [thinking ? "thought" : "text"]: held };
}

/** How much of a text surely is no beginning of a mark. */
function partial(text, mark) {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) if (mark.startsWith(text.slice(-length))) return text.length - length;
  return text.length;
}
