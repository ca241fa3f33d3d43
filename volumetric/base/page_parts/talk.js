// A conversation: messages, the box to write in, an answer that streams. Texts are always texts, never HTML.
//
// The page has the elements talk, ask (a form), text, send, stop and speed. `answer(messages, signal)` is an async
// generator of pieces {text}, {thought}, {tokens: count} and {cut: true}; what it throws is shown, and the message
// can be sent again. `changed(messages)` is called after each answer.

const at = id => document.getElementById(id);
const rate = value => value.toFixed(value < 1 ? 2 : 1);

export function makeTalk(answer, { empty = "", changed = () => {} } = {}) {
  let messages = [], running = null;

  const show = (kind, text = "") => {
    at("empty")?.remove();
    const box = document.createElement("div");
    box.className = kind;
    box.textContent = text;
    if (kind === "error") box.setAttribute("role", "alert");
    at("talk").append(box);
    at("talk").scrollTop = at("talk").scrollHeight;
    return box;
  };

  const thoughts = before => {
    const box = document.createElement("details"), summary = document.createElement("summary");
    box.className = "thought";
    box.open = true;
    summary.textContent = "Thoughts";
    box.append(summary, document.createElement("div"));
    before.before(box);
    return box;
  };

  const stop = () => running?.abort();

  const begin = (earlier = []) => {
    stop();
    messages = [];
    at("talk").replaceChildren();
    show("").id = "empty";
    at("empty").textContent = empty;
    at("speed").textContent = "";
    for (const one of earlier) { messages.push(one); show(one.role, one.content); }
  };

  const reply = async () => {
    running = new AbortController();
    const mine = messages, box = show("assistant");
    box.setAttribute("aria-busy", "true");
    let text = "", cut = false, first = 0, count = 0, thinking = null;
    const say = () => {
      const seconds = (performance.now() - first) / 1000;
      if (count > 1 && seconds > 0)
        at("speed").textContent = `${count} tokens, ${rate((count - 1) / seconds)} tokens/s`;
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
        say();
      }
    } catch (error) {
      if (error.name !== "AbortError") show("error", error.message);
    }
    running = null;
    box.setAttribute("aria-busy", "false");
    if (mine !== messages) return;  // another chat has begun
    if (cut) show("note", "The answer was cut off: it is as long as it may be, or the context is full.");
    if (text) messages.push({ role: "assistant", content: text });
    else {
      // There was no answer: restore the message, to be sent again.
      thinking?.remove();
      box.previousElementSibling?.remove();
      box.remove();
      const { content } = messages.pop();
      at("text").value ||= content;
    }
    changed(messages);
  };

  at("ask").addEventListener("submit", async event => {
    event.preventDefault();
    const text = at("text").value.trim();
    if (!text || running) return;
    for (const box of document.querySelectorAll("#talk > .error, #talk > .note")) box.remove();
    at("text").value = "";
    messages.push({ role: "user", content: text });
    show("user", text);
    at("send").hidden = true; at("stop").hidden = false;
    await reply();
    at("send").hidden = false; at("stop").hidden = true;
    at("text").focus();
  });
  at("text").addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); at("ask").requestSubmit(); }
  });
  at("stop").addEventListener("click", stop);
  return { begin, show, stop, messages: () => messages };
}
