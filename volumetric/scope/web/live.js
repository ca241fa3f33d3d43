// The connection to the server that handed out the page: events by view, and actions that return a result.

const BACKLOG = 2000; // most messages that wait for a view that is not shown yet
const RETRY = 3000; // milliseconds until a refused page asks again

/** Return {on(view, listener), act(view, action), latest(view, kind), close()}, or null where the page stands alone. */
export function connect(tell) {
    const token = document.querySelector('meta[name="volumetric-live"]').content;
    if (!token) return null;
    const query = `?token=${encodeURIComponent(token)}`,
        listeners = new Map(),
        waiting = new Map(),
        latest = new Map();
    let events = null,
        lost = false,
        closed = false,
        timer = 0;

    function receive(message) {
        const { view, kind } = message;
        if (kind === "snapshot") latest.delete(view); // all that came before it is of no use any more
        if (!latest.has(view)) latest.set(view, new Map());
        latest.get(view).set(kind, message);
        const hearing = listeners.get(view);
        if (hearing?.size) {
            for (const listener of [...hearing]) listener(message);
            return;
        }
        const left = kind === "snapshot" ? [] : (waiting.get(view) ?? []).filter(one => kind !== "frame" || one.kind !== "frame");
        waiting.set(view, [...left.slice(-BACKLOG + 1), message]);
    }

    async function refusal() {
        try {
            const answer = await fetch(`/events${query}`, { signal: AbortSignal.timeout(RETRY) });
            if (answer.ok) {
                answer.body?.cancel();
                return null;
            }
            return (await answer.json()).error;
        } catch {
            return null;
        }
    }

    function open() {
        events = new EventSource(`/events${query}`);
        events.onmessage = event => receive(JSON.parse(event.data));
        events.onopen = () => {
            if (lost) tell("connected again");
            lost = false;
        };
        events.onerror = async () => {
            const refused = events.readyState === EventSource.CLOSED;
            if (!lost) {
                lost = true;
                const why = refused ? await refusal() : null;
                if (lost && !closed) tell(why ?? "the program behind this page does not answer");
            }
            if (refused && !closed) timer = setTimeout(open, RETRY); // the browser itself asks again only after a lost connection
        };
    }
    open();
    return {
        /** Call a function with every message for a view, those that waited first; returns a function that ends that. */
        on(view, listener) {
            if (!listeners.has(view)) listeners.set(view, new Set());
            listeners.get(view).add(listener);
            const missed = waiting.get(view) ?? [];
            waiting.delete(view);
            for (const message of missed) listener(message);
            return () => listeners.get(view).delete(listener);
        },
        /** Return the last message of a kind for a view since its last snapshot, or undefined. */
        latest: (view, kind) => latest.get(view)?.get(kind),
        /** Ask the program for something; rejects with its sentence if it refuses. */
        async act(view, action) {
            let answer, result;
            try {
                answer = await fetch(`/act${query}`, {
                    method: "POST",
                    headers: { "Content-Type": "application/json" },
                    body: JSON.stringify({ view, action }),
                });
                result = await answer.json();
            } catch {
                throw new Error("the program behind this page does not answer");
            }
            if (!answer.ok) throw new Error(result.error ?? `the program answered ${answer.status}`);
            return result;
        },
        close() {
            closed = true;
            clearTimeout(timer);
            events.close();
        },
    };
}
