// Runs a network for the newest inputs: while it runs, only the last of what comes meanwhile waits.

/** Return `ask(inputs)`; `answer(outputs, milliseconds)` is called with what comes out, `fail(error)` with an error. */
export function latestRun(model, answer, fail) {
  let waiting = null, running = false;
  return async function ask(inputs) {
    waiting = inputs;
    if (running) return;
    running = true;
    while (waiting) {
      const next = waiting, begun = performance.now();
      waiting = null;
      try {
        const outputs = await model.run(next);
        answer(outputs, performance.now() - begun, next);
      } catch (error) {
        fail(error);
      }
    }
    running = false;
  };
}

/** A time as text. */
export const milliseconds = time => (time < 1e4 ? `${time < 10 ? time.toFixed(1) : Math.round(time)} ms` : `${(time / 1e3).toFixed(1)} s`);
