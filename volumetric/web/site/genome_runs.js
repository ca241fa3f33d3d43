// Genomes that run as a population: their launches look like the calls of a network on rows, with an output for each genome.

/** Return `info` and `run` for a population that does not evolve; any other model as it is. */
export function asRows(model) {
  const { population, ...info } = model.info;
  if (!population || population.evolution) return model;
  const { genomes, inputs, outputs, samples, program, buffers } = population;
  const names = genomes === 1 ? ["output"] : Array.from({ length: genomes }, (_, g) => `genome ${g + 1}`);
  let turn = Promise.resolve();

  /** Columns in, columns out: x is [inputs, samples], y [genomes, outputs, samples]; rows of each genome are returned. */
  const launch = async rows => {
    const x = new Float32Array(inputs * samples);
    rows.forEach((row, s) => row.forEach((value, i) => { x[i * samples + s] = value; }));
    await model.write(buffers.x, x);
    await model.submit(program);
    const y = new Float32Array(await model.read(buffers.y));
    return names.map((_, g) => rows.flatMap((_, s) => Array.from({ length: outputs }, (_, o) => y[(g * outputs + o) * samples + s])));
  };
  const port = (width, one) => ({ ...Object.values(one)[0], shape: [width] });
  return {
    lost: model.lost,
    info: {
      ...info, kind: "rows", inputs: { input: port(inputs, info.inputs) },
      outputs: Object.fromEntries(names.map(name => [name, port(outputs, info.outputs)])),
    },
    run({ input }) {
      const rows = Array.from({ length: input.length / inputs }, (_, r) => [...input.subarray(r * inputs, (r + 1) * inputs)]);
      const work = turn.then(async () => {
        const parts = names.map(() => []);
        for (let first = 0; first < rows.length; first += samples) {
          (await launch(rows.slice(first, first + samples))).forEach((part, g) => parts[g].push(...part));
        }
        return Object.fromEntries(names.map((name, g) => [name, Float32Array.from(parts[g])]));
      });
      turn = work.catch(() => {});
      return work;
    },
  };
}
