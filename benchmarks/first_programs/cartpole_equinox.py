import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

env = gymnasium.make("CartPole-v1")
rng = np.random.default_rng(0)
policy = eqx.nn.MLP(4, 2, 64, 1, key=jax.random.key(0))
optimizer = optax.adam(0.01)
state = optimizer.init(eqx.filter(policy, eqx.is_array))
forward = eqx.filter_jit(lambda policy, x: jax.nn.softmax(policy(x)))


def play(seed):
    observation, _ = env.reset(seed=seed)
    observations, actions, done = [], [], False
    while not done:
        observations.append(observation)
        actions.append(int(rng.random() < forward(policy, observation)[1]))
        observation, _, fell, late, _ = env.step(actions[-1])
        done = fell or late
    return observations, actions


@eqx.filter_jit
def step(policy, state, observations, actions, advantages):
    def loss(policy):
        log_probs = jax.nn.log_softmax(jax.vmap(policy)(observations))
        return -(jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0] * advantages).sum()

    updates, state = optimizer.update(eqx.filter_grad(loss)(policy), state)
    return eqx.apply_updates(policy, updates), state


lengths = []
while sum(lengths[-20:]) < 20 * 475:
    observations, actions = play(len(lengths))
    lengths.append(len(actions))
    returns = np.array([(1 - 0.99 ** (len(actions) - t)) / 0.01 for t in range(len(actions))])
    pad = [(0, 500 - len(actions))]  # one shape, so that JAX compiles once
    advantages = np.pad((returns - returns.mean()) / (returns.std() + 1e-6), pad)
    policy, state = step(policy, state, np.pad(observations, [*pad, (0, 0)]), np.pad(actions, pad), advantages)
print(len(lengths), sum(len(play(10_000 + seed)[1]) for seed in range(20)) / 20)
