// Eyes on a scene: in perspective or without, moved by the mouse, fingers or keys.
import { OrbitControls, OrthographicCamera, PerspectiveCamera, Vector3 } from "../vendor/three.min.js";

const ANGLE = 40,
  MARGIN = 1.12,
  GLIDE = 260;
const SIDES = { front: [0, 0, 1], top: [0, 1, 0.0001], side: [-1, 0, 0] };

/**
 * Return {active, fit(), focus(node), view(name), flat(on), orbit(dx, dy), zoom(factor), state, setState(s), resize(w, h), destroy()}.
 * `changed()` is called when the eye moves, `settled()` when the user lets go. `reduced()` says whether to move without gliding.
 */
export function makeCameras(canvas, nodes, { changed, settled, reduced }) {
  const round = new PerspectiveCamera(ANGLE, 1, 0.01, 1e6),
    even = new OrthographicCamera(-1, 1, 1, -1, -1e5, 1e6);
  const controls = new OrbitControls(round, canvas),
    half = Math.tan((ANGLE * Math.PI) / 360);
  controls.enableDamping = false;
  controls.zoomToCursor = true;
  controls.addEventListener("change", changed);
  controls.addEventListener("end", () => {
    touched = true;
    settled();
  });
  let flat = false,
    width = 1,
    height = 1,
    glide = 0,
    inset = { left: 0, right: 0, top: 0, bottom: 0 };
  const active = () => (flat ? even : round),
    spot = new Vector3();
  const distance = () => active().position.distanceTo(controls.target);

  function frame() {
    const aspect = width / height;
    round.aspect = aspect;
    // what the even eye shows at the target is what the round one would
    const tall = half * Math.max(1e-6, distance());
    Object.assign(even, { top: tall, bottom: -tall, right: tall * aspect, left: -tall * aspect });
    const size = nodes.box.high.distanceTo(nodes.box.low) + nodes.spacing;
    round.near = Math.max(size * 1e-4, distance() * 0.002);
    round.far = distance() + size * 40;
    even.near = -size * 40;
    even.far = distance() + size * 40;
    // menus lie on the scene's edges; its middle is that of what they leave
    const aside = [(inset.right - inset.left) / 2, (inset.bottom - inset.top) / 2];
    for (const one of [round, even]) one.setViewOffset(width, height, ...aside, width, height);
    round.updateProjectionMatrix();
    even.updateProjectionMatrix();
  }
  function place(position, target) {
    cancelAnimationFrame(glide);
    glide = 0;
    active().position.copy(position);
    controls.target.copy(target);
    if (flat) even.zoom = 1;
    frame();
    controls.update();
    changed();
  }
  function travel(position, target) {
    cancelAnimationFrame(glide);
    if (reduced()) {
      place(position, target);
      settled();
      return;
    }
    const from = active().position.clone(),
      old = controls.target.clone(),
      began = performance.now();
    const step = now => {
      const share = Math.min(1, Math.max(0, (now - began) / GLIDE)),
        eased = share * share * (3 - 2 * share);
      place(from.clone().lerp(position, eased), old.clone().lerp(target, eased));
      if (share < 1) glide = requestAnimationFrame(step);
      else settled();
    };
    glide = requestAnimationFrame(step);
  }
  /** Return the direction from which most of the scene is seen: along its thinnest side. */
  function corner() {
    const side = nodes.box.high.clone().sub(nodes.box.low),
      wide = Math.max(side.x, side.y, side.z);
    if (side.z <= wide * 0.12) return new Vector3(0.16, 0.2, 1); // a sheet that faces the viewer
    if (side.z > 1.4 * side.x) return new Vector3(-1, 0.42, 0.5); // depth goes to the right
    return new Vector3(0.55, 0.5, 1);
  }
  /** Return the place of the eye from which all shown nodes are seen, and the middle of them. */
  function fitted(direction) {
    const towards = direction.clone().normalize(),
      up = Math.abs(towards.y) > 0.99 ? new Vector3(0, 0, -1) : new Vector3(0, 1, 0);
    const right = up.clone().cross(towards).normalize(),
      above = towards.clone().cross(right),
      seen = [];
    const low = new Vector3(Infinity, Infinity, Infinity),
      high = low.clone().negate();
    for (let i = 0; i < nodes.count; i++) {
      if (!nodes.shown(i)) continue;
      nodes.position(i, spot);
      low.min(spot);
      high.max(spot);
    }
    if (low.x > high.x) {
      low.set(0, 0, 0);
      high.set(0, 0, 0);
    }
    for (const one of nodes.boxes ?? []) {
      low.min(one.low);
      high.max(one.high);
    }
    const middle = low.clone().add(high).multiplyScalar(0.5),
      pad = nodes.spacing * 0.9;
    let far = nodes.spacing * 6;
    for (let k = 0; k < 8; k++) {
      spot.set(k & 1 ? high.x : low.x, k & 2 ? high.y : low.y, k & 4 ? high.z : low.z).sub(middle);
      const tall = half / MARGIN;
      far = Math.max(
        far,
        (Math.abs(spot.dot(right)) + pad) / ((tall * Math.max(80, width - inset.left - inset.right)) / height) + spot.dot(towards),
        (Math.abs(spot.dot(above)) + pad) / ((tall * Math.max(80, height - inset.top - inset.bottom)) / height) + spot.dot(towards),
      );
    }
    return { position: middle.clone().addScaledVector(towards, far), target: middle, seen };
  }
  let started = false,
    touched = false;
  return {
    get active() {
      return active();
    },
    get flat() {
      return flat;
    },
    /** Whether the user has moved the eye; until then a scene fits itself to a new size. */
    get touched() {
      return touched;
    },
    target: controls.target,
    /** Size of a pixel at a distance of 1, or everywhere without perspective. */
    get pixel() {
      return flat ? (even.top - even.bottom) / even.zoom / height : (2 * half) / height;
    },
    fit(at_once = false) {
      const direction = started ? active().position.clone().sub(controls.target) : corner();
      started = true;
      const { position, target } = fitted(direction.lengthSq() > 0 ? direction : corner());
      if (at_once) place(position, target);
      else travel(position, target);
    },
    focus(node) {
      touched = true;
      const direction = active().position.clone().sub(controls.target).normalize();
      const target = nodes.position(node, new Vector3()),
        near = Math.min(flat ? distance() / even.zoom : distance(), 14 * nodes.spacing);
      travel(target.clone().addScaledVector(direction, near), target);
    },
    view(name) {
      touched = true;
      const direction = name === "corner" ? corner() : new Vector3(...SIDES[name]);
      const { position, target } = fitted(direction);
      travel(position, target);
    },
    setFlat(on) {
      if (on === flat) return;
      const position = active().position.clone();
      if (!on) position.sub(controls.target).divideScalar(even.zoom).add(controls.target);
      flat = on;
      controls.object = active();
      place(position, controls.target.clone());
    },
    orbit(dx, dy) {
      touched = true;
      const away = active().position.clone().sub(controls.target),
        far = away.length();
      const turn = Math.atan2(away.x, away.z) + dx,
        rise = Math.max(-1.55, Math.min(1.55, Math.asin(away.y / far) + dy));
      away.set(Math.sin(turn) * Math.cos(rise), Math.sin(rise), Math.cos(turn) * Math.cos(rise)).multiplyScalar(far);
      place(controls.target.clone().add(away), controls.target.clone());
      settled();
    },
    zoom(factor) {
      touched = true;
      const away = active()
        .position.clone()
        .sub(controls.target)
        .multiplyScalar((flat ? 1 / even.zoom : 1) / factor);
      place(controls.target.clone().add(away), controls.target.clone());
      settled();
    },
    /** What a link holds, and what another scene needs to show the same: numbers and whether it is flat. */
    get state() {
      return [...active().position.toArray(), ...controls.target.toArray(), flat ? even.zoom : 1]
        .map(x => Number(x.toPrecision(5)))
        .concat(flat ? 1 : 0);
    },
    setState(state) {
      if (state.length !== 8 || !state.every(Number.isFinite)) return;
      started = touched = true;
      flat = state[7] === 1;
      controls.object = active();
      place(new Vector3(...state.slice(0, 3)), new Vector3(...state.slice(3, 6)));
      if (flat) {
        even.zoom = Math.max(1e-3, state[6]);
        even.updateProjectionMatrix();
      }
    },
    frame,
    resize(w, h, edges = inset) {
      inset = edges;
      width = Math.max(1, w);
      height = Math.max(1, h);
      frame();
    },
    destroy() {
      cancelAnimationFrame(glide);
      controls.dispose();
    },
  };
}
