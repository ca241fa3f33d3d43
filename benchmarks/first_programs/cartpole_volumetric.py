import gymnasium
from volumetric.evolution import evolve

result = evolve("CartPole-v1", generations=100, seed=1)
env = gymnasium.make("CartPole-v1")
lengths = []
for seed in range(20):
    observation, _ = env.reset(seed=10_000 + seed)
    lengths.append(0)
    done = False
    while not done:
        observation, _, fell, late, _ = env.step(int(result.predict(observation)[0] > 0))
        lengths[-1], done = lengths[-1] + 1, fell or late
print(sum(lengths) / 20)
