// Plays frames: which one is due follows from the time since the start, so that late frames are skipped and nothing drifts.

/** Speeds in frames a second. */
export const SPEEDS = [1, 2, 5, 10, 25, 50, 100, 250, 1000];

/**
 * Return {playing, speed, loop, play(), pause(), setSpeed(fps), setLoop([a, b] or null), moved(), frameAt(now), destroy()}.
 *
 * frames: {first, last}; show(k) shows a frame; current() returns the number of the one that is shown; changed() is called
 * when it starts or stops. clock() returns milliseconds; schedule(f) calls f(now) before the next picture.
 */
export function makePlayback({ frames, show, current, changed, clock = () => performance.now(), schedule = requestAnimationFrame }) {
  let playing = false, speed = 25, loop = null, startFrame = 0, startTime = 0, turn = 0;
  const range = () => loop ?? [frames().first, frames().last];
  function anchor() { startFrame = current(); startTime = clock(); }
  /** Return the number of the frame that is due, and whether playing has ended. */
  function frameAt(now) {
    const [a, b] = range(), length = b - a + 1, passed = Math.max(0, Math.floor((now - startTime) / 1000 * speed + 1e-6));
    const due = startFrame + passed;
    if (due <= b) return { k: Math.max(a, due), ended: false };
    if (loop) return { k: a + (due - a) % length, ended: false };
    return { k: b, ended: true };
  }
  function step(mine) {
    if (!playing || mine !== turn) return;
    const { k, ended } = frameAt(clock());
    if (k !== current()) show(k);
    if (ended) pause(); else schedule(() => step(mine));
  }
  function play() {
    if (playing || frames().last < frames().first) return;
    const [a, b] = range();
    if (current() >= b || current() < a) show(a);
    playing = true;
    anchor();
    changed();
    const mine = ++turn;
    schedule(() => step(mine));
  }
  function pause() {
    if (!playing) return;
    playing = false;
    turn++;
    changed();
  }
  return {
    get playing() { return playing; },
    get speed() { return speed; },
    get loop() { return loop; },
    play, pause, frameAt,
    setSpeed(next) { speed = next; anchor(); },
    setLoop(next) { loop = next; anchor(); },
    /** Continue from the frame that somebody else has chosen. */
    moved: anchor,
    destroy() { playing = false; turn++; },
  };
}
