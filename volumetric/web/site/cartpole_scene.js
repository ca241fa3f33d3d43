// The pole on its cart, as a drawing.
import { LENGTH, MOST_X } from "./cartpole_physics.js";

/** Draw a state, and the force on the cart (−1 … 1, 0: none). */
export function drawCart(context, w, hgt, colour, [x, , angle], force) {
  const scale = Math.min(w / (2 * MOST_X + .8), hgt / (LENGTH + .9)), ground = hgt - .35 * scale, middle = w / 2 + x * scale;
  context.strokeStyle = colour("--line");
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(w / 2 - MOST_X * scale, ground);
  context.lineTo(w / 2 + MOST_X * scale, ground);
  for (const end of [-MOST_X, MOST_X]) { context.moveTo(w / 2 + end * scale, ground - 8); context.lineTo(w / 2 + end * scale, ground + 8); }
  context.stroke();
  context.fillStyle = colour("--dim");
  context.beginPath();
  context.roundRect(middle - .25 * scale, ground - .2 * scale, .5 * scale, .2 * scale, 4);
  context.fill();
  context.strokeStyle = colour("--series-2");
  context.lineWidth = Math.max(4, .08 * scale);
  context.lineCap = "round";
  context.beginPath();
  context.moveTo(middle, ground - .2 * scale);
  context.lineTo(middle + LENGTH * scale * Math.sin(angle), ground - .2 * scale - LENGTH * scale * Math.cos(angle));
  context.stroke();
  if (force) {
    context.strokeStyle = context.fillStyle = colour("--accent");
    context.lineWidth = 3;
    const from = middle + force * .3 * scale, to = middle + force * .55 * scale, y = ground - .1 * scale;
    context.beginPath();
    context.moveTo(from, y); context.lineTo(to, y); context.lineTo(to - force * 7, y - 5); context.moveTo(to, y); context.lineTo(to - force * 7, y + 5);
    context.stroke();
  }
}
