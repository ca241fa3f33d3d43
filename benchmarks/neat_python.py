"""Generations per second of classic NEAT against neat-python, in turn, on the same tasks.

    python -m benchmarks neat_python xor      [--population 150] [--generations 100] [--rounds 3]
    python -m benchmarks neat_python cartpole [--peer PYTHON]
    python -m benchmarks neat_python solve    [--seeds 100]      # who solves it, and when

`--peer` names a Python that has neat-python 2 (and gymnasium for cartpole); without it this one is asked. Both engines
have the same population, number of generations, structures to begin from and mutation rates of weights; no fitness
ends a run. XOR is asked for in three ways: as the problem itself, which scores the whole generation in one compiled
call; by a fitness function of one genome that activates all cases together; and case by case, as neat-python's users
write it. CartPole is played from one first state a generation. "gymnasium" asks Gymnasium for every step, as
neat-python does; "compiled" plays the compiled copy of the same equations. What stepping the environment alone costs
stands beside it. Processor time is what counts on a machine that does other things meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser

PEER = """
import json, os, random, sys, time
import neat
task, population, generations, seed, config = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
random.seed(seed)
XOR = [((0.0, 0.0), 0.0), ((0.0, 1.0), 1.0), ((1.0, 0.0), 1.0), ((1.0, 1.0), 0.0)]
if task == "cartpole":
    import gymnasium
    world = gymnasium.make("CartPole-v1")
began = [0]
def one(genome, settings):
    net = neat.nn.FeedForwardNetwork.create(genome, settings)
    if task == "xor":
        return 4.0 - sum((net.activate(x)[0] - y) ** 2 for x, y in XOR)
    seen, _ = world.reset(seed=began[0])
    total = 0.0
    while True:
        seen, reward, fell, late, _ = world.step(int(net.activate(seen)[0] > 0))
        total += reward
        if fell or late:
            return total
spent = [0.0]
def evaluate(genomes, settings):
    t = time.perf_counter()
    began[0] += 1
    for _, genome in genomes:
        genome.fitness = one(genome, settings)
    spent[0] += time.perf_counter() - t
kinds = neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation
settings = neat.Config(*kinds, config)
run = neat.Population(settings)
t, cpu = time.perf_counter(), time.process_time()
run.run(evaluate, generations)
print(json.dumps({"seconds": time.perf_counter() - t, "cpu": time.process_time() - cpu, "evaluation": spent[0]}))
"""

CONFIG = """
[NEAT]
fitness_criterion = max
fitness_threshold = 1e9
pop_size = {population}
reset_on_extinction = True
no_fitness_termination = True
seed = {seed}
[DefaultGenome]
num_inputs = {inputs}
num_outputs = 1
num_hidden = 0
feed_forward = True
initial_connection = full_direct
activation_default = {activation}
activation_mutate_rate = 0.0
activation_options = {activation}
aggregation_default = sum
aggregation_mutate_rate = 0.0
aggregation_options = sum
structural_mutation_surer = default
single_structural_mutation = False
bias_init_type = gaussian
bias_init_mean = 0.0
bias_init_stdev = 1.0
bias_replace_rate = 0.1
bias_mutate_rate = 0.7
bias_mutate_power = 0.5
bias_max_value = 30.0
bias_min_value = -30.0
response_init_type = gaussian
response_init_mean = 1.0
response_init_stdev = 0.0
response_replace_rate = 0.0
response_mutate_rate = 0.0
response_mutate_power = 0.0
response_max_value = 30.0
response_min_value = -30.0
weight_init_type = gaussian
weight_init_mean = 0.0
weight_init_stdev = 1.0
weight_replace_rate = 0.1
weight_mutate_rate = 0.8
weight_mutate_power = 0.5
weight_max_value = 30
weight_min_value = -30
enabled_default = True
enabled_mutate_rate = 0.01
enabled_rate_to_false_add = 0.0
enabled_rate_to_true_add = 0.0
node_add_prob = 0.05
node_delete_prob = 0.0
conn_add_prob = 0.1
conn_delete_prob = 0.0
compatibility_excess_coefficient = auto
compatibility_disjoint_coefficient = 1.0
compatibility_weight_coefficient = 0.5
compatibility_include_node_genes = True
compatibility_enable_penalty = 1.0
[DefaultSpeciesSet]
compatibility_threshold = 3.0
[DefaultStagnation]
species_fitness_func = max
max_stagnation = 20
species_elitism = 2
[DefaultReproduction]
elitism = 2
survival_threshold = 0.2
min_species_size = 2
"""


def peer(python: str, task: str, population: int, generations: int, seed: int) -> dict[str, float]:
    inputs, activation = (2, "sigmoid") if task == "xor" else (4, "tanh")
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config"
        config.write_text(CONFIG.format(population=population, seed=seed, inputs=inputs, activation=activation))
        arguments = [python, "-c", PEER, task, str(population), str(generations), str(seed), str(config)]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


CASES = [((0.0, 0.0), 0.0), ((0.0, 1.0), 1.0), ((1.0, 0.0), 1.0), ((1.0, 1.0), 0.0)]
INPUTS, TARGETS = np.array([x for x, _ in CASES]), np.array([[y] for _, y in CASES])


def case_by_case(genome: Any) -> float:
    return 4.0 - sum((genome.activate(x)[0] - y) ** 2 for x, y in CASES)


def all_cases(genome: Any) -> float:
    return 4.0 - float(((genome.activate(INPUTS) - TARGETS) ** 2).sum())


XOR = {"volumetric": None, "volumetric, all cases of a genome": all_cases, "volumetric, case by case": case_by_case}
CARTPOLE = ("volumetric, gymnasium", "volumetric, compiled")


def ours(engine: str, population: int, generations: int, seed: int) -> tuple[float, float]:
    from volumetric.evolution import EvolutionConfig, Population, problems

    problem = problems.xor() if engine in XOR else problems.Gym(id="CartPole-v1", compiled=engine.endswith("compiled"))
    config = problem.configure(EvolutionConfig(population=population))
    run = Population(dataclasses.replace(config, fitness_threshold=1e9), seed=seed)
    began, cpu = time.perf_counter(), time.process_time()
    run.evolve(XOR.get(engine) or problem, generations)
    return time.perf_counter() - began, time.process_time() - cpu


def environment_seconds(steps: int = 20_000) -> tuple[float, float]:
    """Seconds of one step of one environment of Gymnasium, and of 150 that it moves as arrays."""
    import gymnasium

    world = gymnasium.make("CartPole-v1")
    worlds = gymnasium.make_vec(
        "CartPole-v1", num_envs=150, vectorization_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
    )
    world.reset(seed=0)
    worlds.reset(seed=0)
    began = time.perf_counter()
    for i in range(steps):
        ended = world.step(i % 2)
        if ended[2] or ended[3]:
            world.reset()
    single, began = (time.perf_counter() - began) / steps, time.perf_counter()
    actions = np.tile([0, 1], 75)
    for _ in range(steps // 20):
        worlds.step(actions)
    return single, (time.perf_counter() - began) / (steps // 20)


def told(rates: list[float]) -> str:
    return f"{median(rates):.2f} | {min(rates):.2f} … {max(rates):.2f}"


def race(task: str, python: str, population: int, generations: int, rounds: int) -> None:
    engines = list(XOR if task == "xor" else CARTPOLE)
    for engine in engines:  # compile
        ours(engine, population, 2, 0)
    names = ("neat-python", *engines)
    rates: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    share = []
    for seed in range(rounds):
        found = peer(python, task, population, generations, seed)
        rates["neat-python"].append(generations / found["seconds"])
        cpu["neat-python"].append(generations / found["cpu"])
        share.append(found["evaluation"] / found["seconds"])
        for engine in engines:
            spent, busy = ours(engine, population, generations, seed)
            rates[engine].append(generations / spent)
            cpu[engine].append(generations / busy)
    print(f"{task}: population {population}, {generations} generations, {rounds} rounds in turn\n")
    print("| engine | generations/s, median | spread | per second of processor time | spread |")
    print("| --- | --- | --- | --- | --- |")
    for name in names:
        print(f"| {name} | {told(rates[name])} | {told(cpu[name])} |")
    print()
    for engine in engines:
        by_clock, by_processor = (median(r[engine]) / median(r["neat-python"]) for r in (rates, cpu))
        print(f"{engine}: {by_clock:.1f} × neat-python by the clock, {by_processor:.1f} × by processor time")
    print(f"neat-python spends {100 * median(share):.0f} % of its time in fitness")
    if task == "cartpole":
        single, many = environment_seconds()
        print(f"one step of gymnasium's environment: {1e6 * single:.1f} µs; of 150 as arrays: {1e6 * many:.0f} µs")


def solve(seeds: int) -> None:
    from volumetric.evolution import EvolutionConfig, Population, problems

    problem = problems.xor()
    taken = []
    for seed in range(seeds):
        run = Population(problem.configure(EvolutionConfig()), seed=seed)
        run.evolve(problem, 150)
        taken += [run.generation + 1] if run.solved else []
    print(f"XOR, 150 genomes, 150 generations: {len(taken)} of {seeds} seeds solved, median {median(taken):.0f}, "
          f"most {max(taken)} generations")  # fmt: skip
    taken, means = [], []
    problem = problems.Gym(id="CartPole-v1")
    for seed in range(min(seeds, 10)):
        run = Population(problem.configure(EvolutionConfig()), seed=seed)
        best = run.evolve(problem, 100)
        taken += [run.generation + 1] if run.solved else []
        means.append(dataclasses.replace(problem, compiled=False).confirm(best.genome))
    print(f"CartPole-v1, 150 genomes, 100 generations: {len(taken)} of {min(seeds, 10)} seeds solved, median "
          f"{median(taken):.0f} generations; mean reward over 100 unseen episodes of Gymnasium's own: least "
          f"{min(means):.1f}, median {median(means):.1f}")  # fmt: skip


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("task", choices=("xor", "cartpole", "solve"))
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--population", type=int, default=150)
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=100)
    given = parser.parse_args()
    if given.task == "solve":
        solve(given.seeds)
    else:
        race(given.task, given.peer, given.population, given.generations, given.rounds)


if __name__ == "__main__":
    main()
