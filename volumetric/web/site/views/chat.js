// A language model: a conversation, or the continuation of a text if it has no chat template.
import { h } from "../elements.js";
import { makeTalk } from "../talk.js";
import { talkSettings } from "../talk_settings.js";

const NAMES = { temperature: "temperature", top_p: "topP", tokens: "maxTokens", seed: "seed" };

export async function show(stage, model, app) {
  const { defaults = {}, chats: template, text: readsText, context } = model.info.language;
  const address = `${location.pathname} ${model.info.title}`; // pages of one host share what a tab stores
  const own = defaults.do_sample ? { temperature: defaults.temperature ?? 1, top_p: defaults.top_p } : { temperature: 0 };
  const settings = talkSettings({ name: `settings ${address}`, system: Boolean(template), defaults: own });
  const fresh = h("button", { type: "button", id: "new", "aria-label": template ? "New chat" : "New text" }, "New");
  app.tools.replaceChildren(settings.element, fresh);
  const word = template ? "Message" : "Beginning of a text";
  stage.replaceChildren(
    h("div", { id: "talk", role: "log", "aria-label": template ? "Conversation" : "Texts", tabindex: 0 }),
    h("form", { id: "ask" },
      h("textarea", { id: "text", rows: 1, placeholder: word, "aria-label": word, enterkeyhint: "send" }),
      h("button", { id: "send" }, template ? "Send" : "Continue"),
      h("button", { id: "stop", type: "button", "aria-keyshortcuts": "Escape", hidden: true }, "Stop")),
    h("output", { id: "speed", "aria-live": "off" }));
  const text = document.getElementById("text");
  const talk = makeTalk((messages, signal) => {
    const { system, ...numbers } = settings.values();
    const options = { signal, ...Object.fromEntries(Object.entries(numbers).map(([name, value]) => [NAMES[name], value])) };
    if (!readsText) return answer(idsAsText(model.generate(idsOf(messages.at(-1).content), options)));
    return answer(template ? model.chat([...(system ? [{ role: "system", content: system }] : []), ...messages], options)
      : model.generate(messages.at(-1).content, options));
  }, {
    empty: template ? "Your messages stay in this page: the model runs on your GPU." : readsText ? "The model has no chat template: it continues your text." : "The model has no tokenizer: write ids of tokens, such as 1 5 7.",
    name: `talk ${address}`, context: () => context ?? 0,
  });
  fresh.addEventListener("click", () => { talk.begin(); text.focus(); });
  text.focus();
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
    if (piece.finishReason) yield { cut: piece.finishReason === "length", tokens: piece.stats?.tokens, prompt: piece.stats?.promptTokens };
  }
  if (held) yield { [thinking ? "thought" : "text"]: held };
}

/** How much of a text surely is no beginning of a mark. */
function partial(text, mark) {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) if (mark.startsWith(text.slice(-length))) return text.length - length;
  return text.length;
}
