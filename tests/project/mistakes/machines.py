"""Mistakes in Python: evolution, clocked networks, fabrics, programs, devices."""

# ruff: noqa: E501 (what somebody types on one line)
from __future__ import annotations

from tests.project.mistakes.mistake import in_python

MISTAKES = (
    in_python(
        "evolve of neat-python",
        """def eval_genomes(genomes, config): pass
evolve(eval_genomes, 2, 1)
""",
        "eval_genomes(genomes, config) | neat-python's signature | def fitness(genome)",
    ),
    in_python(
        "evolve: fitness returns nothing",
        "evolve(lambda g: None, 2, 1, population=10, generations=1)",
        "genome 0 | returned None | return a number",
    ),
    in_python(
        "evolve: fitness returns an array",
        "evolve(lambda g: g.activate([0, 1, 0]), 3, 2, population=10, generations=1)",
        "genome 0 | an array of shape (2,) | its sum",
    ),
    in_python(
        "evolve: too few values",
        "evolve(lambda g: g.activate([1])[0], 2, 1, population=10, generations=1)",
        "genome 0 | inputs have shape (1,) | pass 2 numbers",
    ),
    in_python(
        "evolve: called, not passed",
        "evolve((lambda g: 1.0)(None), 2, 1)",
        "evolve: fitness | is a float | a function of a genome",
    ),
    in_python(
        "evolve: problem misspelled", 'evolve("xorr", population=10, generations=1)', "[problem] | 'xorr' | 'xor'"
    ),
    in_python(
        "evolve: environment misspelled",
        'evolve("CartPoole-v1", population=10, generations=1)',
        "CartPoole-v1 | doesn't exist | pprint_registry",
        slow=True,
    ),
    in_python(
        "evolve: lengths differ",
        "evolve(([[0, 1], [1, 0]], [1, 0, 1]), population=10, generations=1)",
        "targets (3, 1) | same number of rows | one row of targets",
    ),
    in_python(
        "evolve: generations as text", 'evolve("xor", generations="10")', "generations | got '10' | generations=100"
    ),
    in_python("evolve: population of 1", 'evolve("xor", population=1)', "evolution.population | got 1 | 2 or more"),
    in_python("evolve: probability above 1", 'evolve("xor", add_node=20)', "mutation.add_node | got 20 | 0.2"),
    in_python(
        "evolve: config file of neat-python",
        'evolve("xor", config_file="config-feedforward")',
        "evolve | 'config_file' | population=150",
    ),
    in_python(
        "evolve: settings of another name",
        'evolve("xor", elitism=2, mutation_rate=0.5)',
        "evolve | 'mutation_rate' | activation_rate",
    ),
    in_python(
        "evolve: checkpoint in a folder that is not there",
        'evolve("xor", population=10, generations=1, checkpoint="nowhere/run.npz")',
        "nowhere/run.npz | No such file | create the directory",
    ),
    in_python(
        "genome: too few inputs",
        "Population(EvolutionConfig(), 1).genomes[0].activate([1])",
        "inputs | shape (1,) | pass 2 numbers",
    ),
    in_python(
        "genome file that is not there", 'Genome.load("champion.json")', "champion.json | No such file | there is no"
    ),
    in_python("genome file of another kind", 'Genome.load("points.csv")', "genome in JSON | malformed | champion.json"),
    in_python(
        "gym without Gym",
        'evolve(Gym("NoSuch-v0"), population=10, generations=1)',
        "Gym | positional | Gym(id='NoSuch-v0')",
    ),
    in_python(
        "clocked: clock in words",
        'Clocked(network=net, clocks={(0,): "every second tick"})',
        "character 7 | expected one of | every(4)",
    ),
    in_python(
        "clocked: clock of a layer that is not there",
        'Clocked(network=net, clocks={(7,): "every(2)"})',
        "7.0.0.0 | there is no layer | 0.0.0.0",
    ),
    in_python("clocked: every 0", "Every(0)", "period | got 0 | every(1)"),
    in_python(
        "clocked: a stream of rows of another width",
        'open_device("reference").stream(Clocked(network=net), params).run(np.zeros((5, 3), np.float32))',
        "input 'input' | [1, T, 4], got [5, 3] | x[None]",
    ),
    in_python(
        "clocked: input of another name",
        'open_device("reference").stream(Clocked(network=net), params).run({"x": np.zeros((5, 4), np.float32)})',
        "the network | no input 'x' | 'input'",
    ),
    in_python(
        "clocked: hold of nobody",
        'Clocked(network=net, hold={"input": "keep"})',
        "hold: input 'input' | 'keep' | \"last\"",
    ),
    in_python("device of CUDA", 'open_device("cuda")', "device | 'cuda' | gpu"),
    in_python("device misspelled", 'open_device("cpuu")', "device | 'cpuu' | 'cpu'"),
    in_python("fabric: cell as text", 'fabric.Population(cell="lstm")', "cell | 'lstm' | GRU(hidden=32)"),
    in_python(
        "fabric: band of nobody",
        """from volumetric.fabric import lattice2d
lattice2d.XBand("left")
""",
        "XBand: side | 'left' | low, high",
    ),
    in_python(
        "fabric: radius below 0",
        """from volumetric.fabric import lattice2d
lattice2d.LocalRadius(-1)
""",
        "LocalRadius: radius | got -1 | 1.5",
    ),
    in_python(
        "program: region outside of the canvas",
        """from volumetric.program import Canvas, Region
Canvas(frames=1, shape=(4, 4), width=8, regions={"eye": Region(((0, 9), (0, 4)))})
""",
        "region 'eye' | exceeds the 4 | end it at 4",
    ),
    in_python(
        "program: edge to nowhere",
        """from volumetric.program import Canvas, Edge, In, Out, Program, Region
Program(Canvas(frames=1, shape=(4, 4), width=8, regions={"eye": Region(((0, 4), (0, 4)))}), edges=[Edge(reads="eye", writes="belif")], ports={"a": In("eye", 2), "b": Out("eye", 2)})
""",
        "reads 'eye' | no region 'belif' | 'eye'",
    ),
    in_python(
        "program: port of nowhere",
        """from volumetric.program import Canvas, Edge, In, Out, Program, Region
Program(Canvas(frames=1, shape=(4, 4), width=8, regions={"eye": Region(((0, 4), (0, 4)))}), edges=[], ports={"a": In("eyes", 2)})
""",
        "port 'a' | no region 'eyes' | 'eye'",
    ),
    in_python(
        "program: family misspelled clock",
        """from volumetric.program import Region
Region(((0, 4), (0, 4)), clock="evry(4)")
""",
        "clock | 'evry' | every",
    ),
    in_python(
        "program: carrier of nobody",
        """from volumetric.program import Region
Region(((0, 4), (0, 4)), carrier="lstm")
""",
        "carrier | 'lstm' | memory",
    ),
)
