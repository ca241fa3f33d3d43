// What is on screen as a picture, a drawing, a film, or numbers for a figure.

const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "font", "text-anchor", "color"];

/** Return an SVG element as a text that stands alone: its styles are those that the page gives it. */
export function svgText(svg) {
  const copy = svg.cloneNode(true), box = svg.getBoundingClientRect();
  const own = [svg, ...svg.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  own.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of STYLED) copies[i].style?.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  copy.setAttribute("width", box.width || copy.getAttribute("width"));
  copy.setAttribute("height", box.height || copy.getAttribute("height"));
  return new XMLSerializer().serializeToString(copy);
}

function loaded(svg) {
  return new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => fail(new Error("the drawing cannot be made a picture"));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  });
}

/** Return a canvas with all drawings of an element at their places, on its ground; `scale` pixels for each of the page. */
export async function pictureOf(element, scale = 2) {
  const frame = element.getBoundingClientRect();
  const picture = document.createElement("canvas");
  picture.width = Math.max(1, Math.round(frame.width * scale));
  picture.height = Math.max(1, Math.round(frame.height * scale));
  const brush = picture.getContext("2d");
  brush.scale(scale, scale);
  brush.fillStyle = getComputedStyle(document.body).backgroundColor;
  brush.fillRect(0, 0, frame.width, frame.height);
  for (const drawing of element.querySelectorAll("canvas, svg")) {
    const box = drawing.getBoundingClientRect();
    if (!box.width || !box.height || drawing.parentElement.closest("svg")) continue;
    const source = drawing instanceof SVGElement ? await loaded(svgText(drawing)) : drawing;
    brush.imageSmoothingEnabled = getComputedStyle(drawing).imageRendering !== "pixelated";
    brush.drawImage(source, box.left - frame.left, box.top - frame.top, box.width, box.height);
  }
  for (const text of element.querySelectorAll("h2, figcaption, .legend span, .legend text, .tick-label")) {
    const box = text.getBoundingClientRect(), style = getComputedStyle(text);
    if (!box.width || !text.textContent.trim() || text.children.length) continue;
    brush.fillStyle = style.color;
    brush.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    brush.textBaseline = "middle";
    brush.fillText(text.textContent, box.left - frame.left, box.top - frame.top + box.height / 2);
  }
  return picture;
}

/** Return a promise of the PNG of an element. */
export async function pngOf(element) {
  const picture = await pictureOf(element);
  return new Promise(done => picture.toBlob(done, "image/png"));
}

/** Start to film a canvas; returns {stop() → promise of a WebM}. */
export function film(canvas, rate = 30) {
  const kind = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm"].find(name => globalThis.MediaRecorder?.isTypeSupported(name));
  if (!kind) throw new Error("this browser cannot write WebM films");
  const recorder = new MediaRecorder(canvas.captureStream(rate), { mimeType: kind, videoBitsPerSecond: 8e6 }), parts = [];
  recorder.ondataavailable = event => parts.push(event.data);
  recorder.start(200);
  return {
    stop: () => new Promise(done => {
      recorder.onstop = () => done(new Blob(parts, { type: "video/webm" }));
      recorder.stop();
    }),
  };
}

/** Return the numbers behind what an element shows, for `volumetric.viz.scope_figure`: [{kind, title, …}]. */
export function figuresOf(element, exported) {
  const charts = [...element.querySelectorAll(".chart")].map(chart => chart.figureData?.()).filter(Boolean);
  return [...(exported.figures?.() ?? []), ...charts];
}
