import neat

x = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]
y = [0.0, 1.0, 1.0, 0.0]


def evaluate(genomes, config):
    for _, genome in genomes:
        network = neat.nn.FeedForwardNetwork.create(genome, config)
        genome.fitness = 4.0 - sum((network.activate(a)[0] - b) ** 2 for a, b in zip(x, y))


config = neat.Config(
    neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation, "xor_neat.ini"
)
champion = neat.Population(config).run(evaluate, 300)
network = neat.nn.FeedForwardNetwork.create(champion, config)
print([round(network.activate(a)[0], 2) for a in x])
