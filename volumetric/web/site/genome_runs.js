// A genome that runs as a population of one: its launches look like the calls of a network on rows.

/** Return `info` and `run` for a model of the kind "population" with one genome; any other model as it is. */
export function asRows(model) {
  const { population, ...info } = model.info;
  if (!population || population.genomes !== 1) return model;
  const { inputs, outputs, samples, program, buffers } = population;
  let turn = Promise.resolve();

  /** Columns in, columns out: x is [inputs, samples], y [outputs, samples]. */
  const launch = async rows => {
    const x = new Float32Array(inputs * samples);
    rows.forEach((row, s) => row.forEach((value, i) => { x[i * samples + s] = value; }));
    await model.write(buffers.x, x);
    await model.submit(program);
    const y = new Float32Array(await model.read(buffers.y));
    return rows.flatMap((_, s) => Array.from({ length: outputs }, (_, o) => y[o * samples + s]));
  };
  const port = (width, one) => ({ ...Object.values(one)[0], shape: [width] });
  return {
    lost: model.lost,
    info: { ...info, kind: "rows", inputs: { input: port(inputs, info.inputs) }, outputs: { output: port(outputs, info.outputs) } },
    run({ input }) {
      const rows = Array.from({ length: input.length / inputs }, (_, r) => [...input.subarray(r * inputs, (r + 1) * inputs)]);
      const work = turn.then(async () => {
        const parts = [];
        for (let first = 0; first < rows.length; first += samples) parts.push(...await launch(rows.slice(first, first + samples)));
        return { output: Float32Array.from(parts) };
      });
      turn = work.catch(() => {});
      return work;
    },
  };
}
