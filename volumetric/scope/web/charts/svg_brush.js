// Draws as a canvas does, but into an SVG text: for pictures that are drawn by strokes and saved as lines.

const escaped = text => String(text).replace(/[&<>"]/g, sign => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);
const n = value => String(Math.round(value * 100) / 100);

/** Return an object with the methods of a 2D context that lines, dots and texts need, and text() → the SVG. */
export function svgBrush(width, height) {
  const parts = [];
  let path = "";
  const put = (fill, stroke, d) =>
    parts.push(`<path d="${d}" fill="${fill}" stroke="${stroke}" stroke-width="${brush.lineWidth}" opacity="${n(brush.globalAlpha)}"/>`);
  const brush = {
    fillStyle: "#000",
    strokeStyle: "#000",
    lineWidth: 1,
    globalAlpha: 1,
    font: "",
    textAlign: "start",
    beginPath() {
      path = "";
    },
    moveTo(x, y) {
      path += `M${n(x)},${n(y)}`;
    },
    lineTo(x, y) {
      path += `L${n(x)},${n(y)}`;
    },
    bezierCurveTo(...at) {
      path += `C${at.map(n).join(" ")}`;
    },
    /** A whole circle; no other arc is drawn. */
    arc(x, y, r) {
      path += `M${n(x - r)},${n(y)}a${n(r)},${n(r)} 0 1 0 ${n(2 * r)},0a${n(r)},${n(r)} 0 1 0 ${n(-2 * r)},0`;
    },
    stroke() {
      put("none", brush.strokeStyle, path);
    },
    fill() {
      put(brush.fillStyle, "none", path);
    },
    fillRect(x, y, w, h) {
      put(brush.fillStyle, "none", `M${n(x)},${n(y)}h${n(w)}v${n(h)}h${n(-w)}Z`);
    },
    fillText(text, x, y) {
      const anchor = { center: "middle", right: "end" }[brush.textAlign] ?? "start";
      parts.push(
        `<text x="${n(x)}" y="${n(y)}" fill="${brush.fillStyle}" text-anchor="${anchor}" style="font:${escaped(brush.font)}">${escaped(text)}</text>`,
      );
    },
    text: () =>
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">${parts.join("")}</svg>`,
  };
  return brush;
}
