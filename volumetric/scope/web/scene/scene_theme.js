// The page's colours as numbers, for shaders and pictures.

const INCOMING = [
    [0, 114, 178],
    [86, 180, 233],
  ],
  OUTGOING = [
    [213, 94, 0],
    [230, 159, 0],
  ]; // on light and on dark

/** Return {dark, back, front, dim, grid, accent, odd, incoming, outgoing}, each [r, g, b] from 0 to 255. */
export function sceneTheme(host) {
  const style = getComputedStyle(host),
    brush = document.createElement("canvas").getContext("2d");
  const read = (name, fallback) => {
    brush.fillStyle = fallback;
    brush.fillStyle = style.getPropertyValue(name).trim() || fallback;
    const text = brush.fillStyle; // #rrggbb, whatever the style sheet has
    return [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16) || 0);
  };
  const back = read("--stage", "#eef1f6"),
    dark = back[0] + back[1] + back[2] < 384 ? 1 : 0;
  return {
    dark: dark === 1,
    back,
    front: read("--front", "#1a1d23"),
    dim: read("--dim", "#5b6472"),
    grid: read("--grid", "#e3e7ee"),
    accent: read("--accent", "#1d5fd1"),
    odd: read("--odd", "#c2185b"),
    incoming: INCOMING[dark],
    outgoing: OUTGOING[dark],
  };
}
