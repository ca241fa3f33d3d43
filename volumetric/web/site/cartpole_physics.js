// CartPole-v1 of Gymnasium: Barto, Sutton & Anderson, "Neuronlike Adaptive Elements That Can Solve Difficult Learning
// Control Problems" (1983), with Euler's method and Gymnasium's constants.

const GRAVITY = 9.8, CART = 1, POLE = .1, HALF_LENGTH = .5, FORCE = 10, SECONDS = .02;
export const MOST_X = 2.4;
export const MOST_ANGLE = 12 * Math.PI / 180;
export const LENGTH = 2 * HALF_LENGTH;
export const STEP_MS = 1000 * SECONDS;

/** Names of the numbers of a state. */
export const OBSERVED = ["position", "speed", "angle", "angular speed"];

/** The state after one step: [x, speed, angle, angular speed]; `force` is −1 … 1 of the largest push. */
export function next([x, speed, angle, turn], force) {
  const mass = CART + POLE, cos = Math.cos(angle), sin = Math.sin(angle);
  const push = (force * FORCE + POLE * HALF_LENGTH * turn * turn * sin) / mass;
  const turning = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - POLE * cos * cos / mass));
  const moving = push - POLE * HALF_LENGTH * turning * cos / mass;
  return [x + SECONDS * speed, speed + SECONDS * moving, angle + SECONDS * turn, turn + SECONDS * turning];
}

/** Whether an episode ends in a state. */
export const fallen = ([x, , angle]) => !(Math.abs(x) <= MOST_X && Math.abs(angle) <= MOST_ANGLE);

/** The force that outputs mean: of one output its sign, of two the larger one. */
export const forceOf = outputs => ((outputs.length === 1 ? outputs[0] > 0 : outputs[1] > outputs[0]) ? 1 : -1);

/** A random first state. */
export const begin = () => Array.from({ length: 4 }, () => .1 * Math.random() - .05);
