// Canvases of the charts over time, and which frames stand in which columns.

/** Give a canvas the size of its box in real pixels; returns {brush, width, height} in CSS pixels, or null without a size. */
export function sharpen(canvas) {
  const width = Math.floor(canvas.clientWidth), height = Math.floor(canvas.clientHeight), ratio = Math.min(devicePixelRatio || 1, 2);
  if (width < 2 || height < 2) return null;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const brush = canvas.getContext("2d");
  brush.setTransform(ratio, 0, 0, ratio, 0, 0);
  brush.clearRect(0, 0, width, height);
  return { brush, width, height };
}

/** Return colours of the theme: colour("--line"). */
export const themeOf = element => { const style = getComputedStyle(element); return name => style.getPropertyValue(name).trim() || "#888"; };

/** Return where the middle of frame k stands in a window [a, b] of frames, 0 … 1. */
export const placeOf = (k, [a, b]) => (k - a + .5) / (b - a + 1);

/** Return the frame at a place 0 … 1 of a window. */
export const frameAt = (place, [a, b]) => Math.max(a, Math.min(b, Math.floor(a + place * (b - a + 1))));

/** Call f(column, from, to) for every column of pixels with the frames [from, to) that stand in it, at least one. */
export function eachColumn(width, [a, b], f) {
  const count = b - a + 1, columns = Math.max(1, Math.round(width));
  for (let x = 0; x < columns; x++) {
    const from = a + Math.floor(x * count / columns);
    f(x, from, Math.max(from + 1, a + Math.floor((x + 1) * count / columns)));
  }
}

/** Return f, called at most once before the next picture. */
export function soon(f) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; f(); });
  };
}
