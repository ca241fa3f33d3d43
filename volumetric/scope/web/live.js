// The connection to the server that handed out the page: events by view, and actions that return a result.

/** Return {on(view, listener), act(view, action)}, or null where the page stands alone. */
export function connect(tell) {
  const token = document.querySelector('meta[name="volumetric-live"]').content;
  if (!token) return null;
  const query = `?token=${encodeURIComponent(token)}`, listeners = new Map();
  const events = new EventSource(`/events${query}`);
  let lost = false;
  events.onmessage = event => {
    const message = JSON.parse(event.data);
    for (const listener of listeners.get(message.view) ?? []) listener(message);
  };
  events.onopen = () => { if (lost) tell("connected again"); lost = false; };
  events.onerror = () => { if (!lost) tell("the program behind this page does not answer"); lost = true; };
  return {
    /** Call a function with every message for a view; returns a function that ends that. */
    on(view, listener) {
      if (!listeners.has(view)) listeners.set(view, new Set());
      listeners.get(view).add(listener);
      return () => listeners.get(view).delete(listener);
    },
    /** Ask the program for something; rejects with its sentence if it refuses. */
    async act(view, action) {
      const answer = await fetch(`/act${query}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ view, action }),
      });
      const result = await answer.json();
      if (!answer.ok) throw new Error(result.error ?? `the program answered ${answer.status}`);
      return result;
    },
  };
}
