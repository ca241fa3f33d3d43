import gymnasium
import numpy as np
from tinygrad import Context, Tensor, TinyJit
from tinygrad.nn import Linear, optim, state

env = gymnasium.make("CartPole-v1")
rng = np.random.default_rng(0)
layers = [Linear(4, 64), Tensor.relu, Linear(64, 2)]
optimizer = optim.Adam(state.get_parameters(layers), lr=0.01)
forward = TinyJit(lambda observation: observation.sequential(layers).softmax().realize())


def play(seed):
    observation, _ = env.reset(seed=seed)
    observations, actions, done = [], [], False
    while not done:
        observations.append(observation)
        actions.append(int(rng.random() < forward(Tensor(observation)).numpy()[1]))
        observation, _, fell, late, _ = env.step(actions[-1])
        done = fell or late
    return observations, actions


@TinyJit
@Context(TRAINING=1)
def step(observations, actions, advantages):
    optimizer.zero_grad()
    log_probs = observations.sequential(layers).log_softmax().gather(1, actions.reshape(-1, 1)).reshape(-1)
    loss = -(log_probs * advantages).sum().backward()
    return loss.realize(*optimizer.schedule_step())


lengths = []
while sum(lengths[-20:]) < 20 * 475:
    observations, actions = play(len(lengths))
    lengths.append(len(actions))
    returns = np.array([(1 - 0.99 ** (len(actions) - t)) / 0.01 for t in range(len(actions))])
    pad = [(0, 500 - len(actions))]  # one shape, so that the step compiles once
    advantages = np.pad((returns - returns.mean()) / (returns.std() + 1e-6), pad).astype(np.float32)
    step(Tensor(np.pad(observations, [*pad, (0, 0)])), Tensor(np.pad(actions, pad)), Tensor(advantages))
print(len(lengths), sum(len(play(10_000 + seed)[1]) for seed in range(20)) / 20)
