// A conversation: messages, the box to write in, an answer that streams. Texts are always texts, never HTML.
//
// The page has the elements talk, ask (a form), text, send, stop and speed. `answer(messages, signal)` is an async
// generator of pieces {text}, {thought}, {tokens: count, prompt: count} and {cut: true}; what it throws is shown, and
// the message can be sent again. `context()` is how many tokens the model has room for, 0 if unknown.
// The tab stores the messages by `name`.
import { copyButton } from "./copy_button.js";
import { h } from "./elements.js";
import { store, stored } from "./tab_storage.js";

const at = id => document.getElementById(id);
const rate = value => value.toFixed(value < 1 ? 2 : 1);
const grouped = count => count.toLocaleString("en");

export function makeTalk(answer, { name, empty = "", context = () => 0 }) {
  let messages = [], running = null;

  const show = (kind, text = "") => {
    at("empty")?.remove();
    const box = h("div", { class: kind, role: kind === "error" ? "alert" : null }, text);
    at("talk").append(box);
    at("talk").scrollTop = at("talk").scrollHeight;
    return box;
  };

  const thoughts = before => {
    const box = h("details", { class: "thought", open: true }, h("summary", {}, "Thoughts"), h("div"));
    before.before(box);
    return box;
  };

  /** Remove what follows the last message of the reader. */
  const cutBack = () => {
    const last = [...document.querySelectorAll("#talk > .user")].at(-1);
    while (last.nextSibling) last.nextSibling.remove();
    return last;
  };
  const retry = () => {
    if (running) return;
    cutBack();
    messages.pop();
    void send();
  };
  const edit = () => {
    if (running) return;
    cutBack().remove();
    messages.pop();
    const { content } = messages.pop(), draft = at("text").value;
    at("text").value = draft ? `${content}\n${draft}` : content;
    at("speed").textContent = "";
    if (!messages.length) begin();
    store(name, messages);
    at("text").focus();
  };

  /** Show what can be done with an answer; only the last one can be had again. */
  const actions = text => {
    for (const one of document.querySelectorAll("#talk .last")) one.remove();
    const last = (label, onclick) => h("button", { type: "button", class: "last", onclick }, label);
    const bar = show("actions");
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Answer");
    bar.setAttribute("aria-live", "off"); // the log need not read its buttons
    bar.append(copyButton(() => text), last("Retry", retry), last("Edit message", edit));
  };

  const stop = () => running?.abort();

  const begin = (earlier = []) => {
    stop();
    messages = [];
    store(name, earlier);
    at("talk").replaceChildren();
    show("").id = "empty";
    at("empty").textContent = empty;
    at("speed").textContent = "";
    for (const one of earlier) {
      messages.push(one);
      show(one.role, one.content);
      if (one.role === "assistant") actions(one.content);
    }
  };

  const reply = async () => {
    running = new AbortController();
    const mine = messages, box = show("assistant");
    box.setAttribute("aria-busy", "true");
    at("speed").textContent = "Reading…";
    let text = "", cut = false, first = 0, count = 0, prompt = 0, thinking = null;
    const say = () => {
      const seconds = (performance.now() - first) / 1000, room = context();
      const parts = [count > 1 && seconds > 0 ? `${grouped(count)} tokens, ${rate((count - 1) / seconds)} tokens/s` : "",
        prompt && room ? `context: ${grouped(Math.min(prompt + count, room))} of ${grouped(room)}` : ""].filter(Boolean);
      if (parts.length) at("speed").textContent = parts.join(" · ");
    };
    try {
      for await (const piece of answer(messages, running.signal)) {
        cut ||= piece.cut === true;
        if (piece.text || piece.thought) {
          first ||= performance.now();
          count += 1;
          const follow = at("talk").scrollHeight - at("talk").scrollTop - at("talk").clientHeight < 60;
          if (piece.thought) {
            thinking ??= thoughts(box);
            thinking.lastChild.textContent += piece.thought;
          }
          if (piece.text) {
            if (thinking && !text) thinking.open = false;
            text += piece.text;
            box.textContent = text;
          }
          if (follow) at("talk").scrollTop = at("talk").scrollHeight;
        }
        if (piece.tokens) count = piece.tokens;
        if (piece.prompt) prompt = piece.prompt;
        if (first) say();
      }
    } catch (error) {
      if (error.name !== "AbortError") show("error", error.message);
    }
    running = null;
    box.setAttribute("aria-busy", "false");
    if (mine !== messages) return;  // another chat has begun
    if (!first) at("speed").textContent = "";
    if (cut) show("note", "The answer was cut off: it is as long as it may be, or the context is full.");
    if (text) {
      messages.push({ role: "assistant", content: text });
      actions(text);
    } else {
      // There was no answer: restore the message, to be sent again.
      thinking?.remove();
      box.previousElementSibling?.remove();
      box.remove();
      const { content } = messages.pop();
      at("text").value ||= content;
    }
    store(name, messages);
  };

  const send = async () => {
    for (const box of document.querySelectorAll("#talk > .error, #talk > .note")) box.remove();
    at("send").hidden = true; at("stop").hidden = false;
    await reply();
    at("send").hidden = false; at("stop").hidden = true;
    at("text").focus();
  };

  at("ask").addEventListener("submit", event => {
    event.preventDefault();
    const text = at("text").value.trim();
    if (!text || running) return;
    at("text").value = "";
    messages.push({ role: "user", content: text });
    show("user", text);
    void send();
  });
  at("text").addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); at("ask").requestSubmit(); }
  });
  at("stop").addEventListener("click", stop);
  addEventListener("keydown", event => { if (event.key === "Escape" && !event.defaultPrevented) stop(); });
  const talked = stored(name, []);
  begin(Array.isArray(talked) ? talked.filter(one => ["user", "assistant"].includes(one?.role) && typeof one.content === "string") : []);
  return { begin, show };
}
