"""Mistakes in files for ``volumetric evolve``."""

from __future__ import annotations

from tests.project.mistakes.mistake import in_evolve_file

MISTAKES = (
    in_evolve_file("epochs", "epochs = 10", "'epochs' | unknown key | volumetric train"),
    in_evolve_file("neat-python's name of the population", "pop_size = 20", "'pop_size' | unknown key | 'population'"),
    in_evolve_file(
        "neat-python's sections",
        """[NEAT]
pop_size = 20
""",
        "'NEAT' | unknown key | population = 150",
    ),
    in_evolve_file(
        "population of 1",
        """population = 1
generations = 1
""",
        "evolution.population | at least 2, got 1 | 2 or more",
    ),
    in_evolve_file("population as text", 'population = "20"', "population | got `str` | 20"),
    in_evolve_file("no generations", "generations = 0", "generations | at least 1, got 0 | 150"),
    in_evolve_file("problem misspelled", 'problem = "xr"', "[problem] | 'xr' | 'xor'"),
    in_evolve_file(
        "environment misspelled",
        'problem = { kind = "gym", id = "CartPol-v1" }',
        "CartPol-v1 | doesn't exist | pprint_registry",
    ),
    in_evolve_file("environment without an id", 'problem = { kind = "gym" }', "[problem] | id must be given | id ="),
    in_evolve_file(
        "environment of a missing module",
        'problem = { kind = "gym", id = "chase:Chase-v0" }',
        "chase:Chase-v0 | no module named 'chase' | looked for chase.py",
    ),
    in_evolve_file(
        "fitness without a function",
        'fitness = "my_fitness"',
        "my_fitness | does not name a function | module:function",
    ),
    in_evolve_file(
        "fitness of a function that is not there",
        'fitness = "my_fitness:fail"',
        "my_fitness.py | has no 'fail' | 'fails'",
    ),
    in_evolve_file(
        "fitness of neat-python",
        'fitness = "my_fitness:neat"',
        "neat(genomes, config) | neat-python's signature | def fitness(genome)",
    ),
    in_evolve_file(
        "fitness that returns nothing",
        """population = 10
generations = 1
fitness = "my_fitness:forgets"
""",
        "genome 0 | returned None | return a number",
        started=True,
    ),
    in_evolve_file(
        "fitness that returns a word",
        """population = 10
generations = 1
fitness = "my_fitness:words"
""",
        "genome 0 | 'good' | return a number",
        started=True,
    ),
    in_evolve_file(
        "fitness that returns all outputs",
        """population = 10
generations = 1
fitness = "my_fitness:whole"
[genome]
inputs = 2
outputs = 2
""",
        "genome 0 | an array of shape (2,) | its sum",
        started=True,
    ),
    in_evolve_file(
        "fitness of NaN",
        """population = 10
generations = 1
fitness = "my_fitness:nan"
""",
        "genome 0 | fitness is nan | finite number",
        started=True,
    ),
    in_evolve_file(
        "fitness with too many inputs",
        """population = 10
generations = 1
fitness = "my_fitness:fails"
""",
        "genome 0 | inputs have shape (3,) | pass 2 numbers",
        started=True,
    ),
    in_evolve_file(
        "fitness with a misspelled method",
        """population = 10
generations = 1
fitness = "my_fitness:misspells"
""",
        "my_fitness.py, line 6 | no attribute 'activte' | correct the function",
        started=True,
    ),
    in_evolve_file(
        "fitness that divides by 0",
        """population = 10
generations = 1
fitness = "my_fitness:breaks"
""",
        "my_fitness.py, line 17 | division by zero | correct the function",
        started=True,
    ),
    in_evolve_file(
        "inputs that contradict the problem",
        """[genome]
inputs = 3
""",
        "genome.inputs is 3 | the table has 2 | remove genome.inputs",
    ),
    in_evolve_file(
        "activation of nobody",
        """[genome]
activation = "sigmoidal"
""",
        "genome.activation | 'sigmoidal' | 'sigmoid'",
    ),
    in_evolve_file(
        "probability above 1",
        """[mutation]
add_node = 5.0
""",
        "mutation.add_node | got 5.0 | 0.05",
    ),
    in_evolve_file(
        "probability below 0",
        """[mutation]
add_node = -0.1
""",
        "mutation.add_node | got -0.1 | 0 is never",
    ),
    in_evolve_file(
        "neat-python's name of a probability",
        """[mutation]
node_add_prob = 0.1
""",
        "mutation | 'node_add_prob' | 'add_node'",
    ),
    in_evolve_file("mutation at the top", "add_node = 0.1", "'add_node' | unknown key | [mutation]"),
    in_evolve_file("MAP-Elites", 'search = "map-elites"', "search | 'map-elites' | novelty"),
    in_evolve_file("algorithm NEAT", 'algorithm = "neat"', "algorithm | 'neat' | \"classic\" is NEAT"),
    in_evolve_file("room without layers", "room = 2", 'room | needs layers | algorithm = "grid"'),
    in_evolve_file(
        "two goals",
        """problem = "xor"
fitness = "my_fitness:breaks"
""",
        "fitness and problem | exclude each other | remove",
    ),
    in_evolve_file(
        "novelty without behaviour",
        """search = "novelty"
[genome]
inputs = 2
outputs = 1
""",
        "[novelty] behave | is missing | module:function",
    ),
    in_evolve_file(
        "novelty and a problem",
        """search = "novelty"
problem = "xor"
""",
        "novelty search | does not use problem | remove problem",
    ),
    in_evolve_file(
        "elites above the population",
        """population = 5
[species]
elitism = 50
""",
        "species.elitism | the population 5 | elitism = 2",
    ),
    in_evolve_file(
        "table that is not there",
        'problem = { kind = "table", csv = "no.csv" }',
        "no.csv | No such file | did you mean",
    ),
    in_evolve_file(
        "table without a file", 'problem = { kind = "table" }', '[problem] table | no npz or csv | csv = "points.csv"'
    ),
    in_evolve_file(
        "table of words",
        'problem = { kind = "table", csv = "names.csv" }',
        "column 'name' | is not a number | remove the column",
    ),
    in_evolve_file(
        "budget in words",
        """[budget]
seconds = "1 hour"
""",
        "seconds | got `str` | a number",
    ),
    in_evolve_file("workers below 0", "workers = -1", "workers | at least 0, got -1 | 0"),
    in_evolve_file(
        "network for genomes without layers",
        """[network]
builder = "sequential"
""",
        "'network' | unknown key | algorithm = \"grid\"",
    ),
    in_evolve_file(
        "file of neat-python",
        """[DefaultGenome]
num_inputs = 2
num_outputs = 1
""",
        "'DefaultGenome' | unknown key | [genome]",
    ),
    in_evolve_file("device for genomes misspelled", 'device = "gpux"', "device | 'gpux' | 'gpu'"),
    in_evolve_file("output is a file", 'output = "points.csv"', "points.csv | it is a file | --out"),
)
