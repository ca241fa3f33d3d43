// Decoding on the GPU, two tokens in flight, as `volumetric.devices.gpu.token_loop`: the pick writes the next id and moves
// the position in GPU buffers, so every token submits the same commands.

import { mappedCopy } from "./buffers.js";
import { controlWords, gridRows } from "./control_block.js";
import { AHEAD, NUMBERS, ROW_WORDS, drawKind, drawPlan, writeNumbers } from "./draw_plan.js";
import { RandomStream } from "./random.js";
import { drawToken, unusableLogits } from "./sampling.js";

const DEPTH = 3;
const UNCERTAIN = 0xfffffffc;
const UNUSABLE = { 0xffffffff: "NaN", 0xfffffffe: "infinite", 0xfffffffd: "all -inf" };
const ADJUSTED = 8;
const RECENT = 0x80000000;
const PICKS = { plain: "draw", weight: "draw top_p", count: "draw top_k" };

/** The tokens of one generation. */
export class TokenLoop {
  #machine;
  #language;
  #params;
  #randoms;
  #plan;
  #seen;
  #pick = null;
  #ring = [];
  #turn = 0;
  #submitted = [];
  #writtenUntil = 0;

  /**
   * @param {import("./machine.js").Machine} machine
   * @param {object} params sampling parameters, with a seed
   * @param {number[]} prompt for the repetition penalty
   */
  constructor(machine, params, prompt) {
    this.#machine = machine;
    this.#language = machine.network.language;
    this.#params = params;
    this.#randoms = params.temperature ? new RandomStream(params.seed) : null;
    this.#plan = drawPlan(params, this.#language.vocabulary);
    this.#seen = params.repetitionPenalty === 1 ? null : new Set(prompt);
  }

  /** Prepare the programs; a generation whose draws the GPU cannot do has no pick. */
  async prepare() {
    const { draw, picks, token } = this.#language;
    const kind = this.#plan && drawKind(this.#plan);
    const name = (kind === "greedy" ? "greedy" : PICKS[kind]) + (this.#seen ? " adjusted" : "");
    const tooMany = this.#seen && this.#seen.size + Math.min(this.#params.maxTokens, this.#language.context) > (draw?.most_changes ?? 0);
    const usable = this.#plan && Object.hasOwn(picks, name) && this.#machine.programs.has(picks[name]) && !tooMany
      && (kind === "greedy" && !this.#seen || (draw && draw.numbers === NUMBERS));
    this.#pick = usable ? picks[name] : null;
    await this.#machine.programs.prepare(this.#pick ? [token, this.#pick] : [token]);
  }

  /**
   * Feed a token at a position; yield the next token, feed that, and so on, up to `room` tokens.
   */
  async *run(id, position, room) {
    try {
      if (this.#pick === null) {
        yield* this.#runOnHost(id, position, room);
        return;
      }
      this.#begin(id, position);
      for (let step = 0; step < room; step++) {
        if (this.#plan[0] & 3 && position - this.#writtenUntil >= AHEAD) this.#writePlan(position);
        const depth = Math.min(this.#seen ? 1 : DEPTH, room - step);
        while (this.#submitted.length < depth) this.#submitted.push(this.#submit());
        let next = (await this.#submitted.shift())[0];
        this.#machine.check();
        position += 1;
        if (Object.hasOwn(UNUSABLE, next)) throw unusableLogits(UNUSABLE[next]);
        const uncertain = next === UNCERTAIN;
        if (uncertain) {
          await Promise.all(this.#submitted.splice(0));
          next = this.#choose(await this.#logits(this.#language.draw.doubtful));
        } else {
          this.#randoms?.take();
        }
        this.#seen?.add(next);
        yield next;
        if ((uncertain || this.#seen) && step + 1 < room) this.#begin(next, position);
      }
    } finally {
      await Promise.allSettled(this.#submitted.splice(0));
      this.#ring.forEach(buffer => buffer.destroy());
      this.#ring = [];
    }
  }

  /** Feed a token at a position; return the logits behind it. */
  async logitsOf(id, position) {
    this.#place(id, position);
    this.#machine.submit(this.#language.token, this.#rows());
    const logits = await this.#logits(this.#machine.network.outputs.logits.buffer);
    this.#machine.check();
    return logits;
  }

  async *#runOnHost(id, position, room) {
    for (let step = 0; step < room; step++, position++) {
      id = this.#choose(await this.logitsOf(id, position));
      this.#seen?.add(id);
      yield id;
    }
  }

  /** Draw on the host, with the next random number. */
  #choose(logits) {
    return drawToken(logits, this.#params, this.#randoms?.take() ?? 0, this.#seen);
  }

  async #logits(name) {
    const { readback } = this.#machine;
    return new Float32Array(await readback.read([[this.#machine.buffer(name), 0, 4 * this.#language.vocabulary]]));
  }

  #rows() {
    return gridRows(this.#machine.network.calls.control, 1);
  }

  /** Set token and position on the device. */
  #place(id, position) {
    this.#machine.write(this.#machine.network.inputs.tokens.buffer, Int32Array.of(id));
    const { control } = this.#machine.network.calls;
    this.#machine.write(control.buffer, controlWords(control, position, 1));
  }

  #begin(id, position) {
    this.#place(id, position);
    if (this.#plan.some(word => word) || this.#seen) this.#writePlan(position);
  }

  /** Write how the row is drawn, with the random numbers of the next draws, and the scores that change before. */
  #writePlan(position) {
    const { plans, changes, table_words: table } = this.#language.draw;
    const words = new Uint32Array(ROW_WORDS);
    words.set(this.#plan);
    if (this.#randoms) writeNumbers(words, this.#randoms.ahead(NUMBERS), position);
    if (this.#seen) {
      words[0] |= ADJUSTED;
      words[10] = this.#seen.size;
      new Float32Array(words.buffer)[11] = this.#params.repetitionPenalty;
      const list = new Uint32Array(4 * this.#seen.size);
      [...this.#seen].forEach((token, i) => {
        list[4 * i] = (token | RECENT) >>> 0;
      });
      if (list.length) this.#machine.write(changes, list);
    }
    this.#machine.write(plans, words, 4 * table);
    this.#writtenUntil = position;
  }

  /** Submit the next token; returns a promise of its id. */
  #submit() {
    const { device, programs } = this.#machine;
    if (this.#ring.length <= DEPTH) {
      this.#ring.push(device.createBuffer({ size: 4, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }));
      this.#turn = this.#ring.length - 1;
    }
    const target = this.#ring[this.#turn];
    this.#turn = (this.#turn + 1) % (DEPTH + 1);
    const encoder = device.createCommandEncoder();
    const rows = this.#rows();
    programs.record(encoder, this.#language.token, rows);
    programs.record(encoder, this.#pick, rows);
    encoder.copyBufferToBuffer(this.#machine.buffer(this.#machine.network.inputs.tokens.buffer), 0, target, 0, 4);
    device.queue.submit([encoder.finish()]);
    const id = mappedCopy(target, 4).then(data => new Uint32Array(data));
    id.catch(() => {}); // reported where it is awaited
    return id;
  }
}
