import gymnasium
import neat

env = gymnasium.make("CartPole-v1")


def play(network, seed):
    observation, _ = env.reset(seed=seed)
    length, done = 0, False
    while not done:
        observation, _, fell, late, _ = env.step(int(network.activate(observation)[0] > 0))
        length, done = length + 1, fell or late
    return length


def evaluate(genomes, config):
    for _, genome in genomes:
        network = neat.nn.FeedForwardNetwork.create(genome, config)
        genome.fitness = sum(play(network, seed) for seed in range(5)) / 5


config = neat.Config(
    neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation, "cartpole_neat.ini"
)
champion = neat.Population(config).run(evaluate, 100)
network = neat.nn.FeedForwardNetwork.create(champion, config)
print(sum(play(network, 10_000 + seed) for seed in range(20)) / 20)
