from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

text = np.frombuffer(Path("esther.txt").read_bytes(), np.uint8).astype(np.int32)
windows = text[: len(text) // 65 * 65].reshape(-1, 65)


class Net(eqx.Module):
    embedding: eqx.nn.Embedding
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.embedding = eqx.nn.Embedding(256, 64, key=keys[0])
        self.cell = eqx.nn.LSTMCell(64, 128, key=keys[1])
        self.head = eqx.nn.Linear(128, 256, key=keys[2])

    def __call__(self, ids, state=(jnp.zeros(128), jnp.zeros(128))):
        def step(state, id):
            state = self.cell(self.embedding(id), state)
            return state, self.head(state[0])

        return jax.lax.scan(step, state, ids)[::-1]


model = Net(jax.random.key(0))
optimizer = optax.adamw(5e-3)
state = optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_value_and_grad
def loss_of(model, batch):
    logits = jax.vmap(lambda ids: model(ids)[0])(batch[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()


@eqx.filter_jit
def step(model, state, batch):
    loss, grads = loss_of(model, batch)
    updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), state, loss


rng = np.random.default_rng(0)
for epoch in range(15):
    order = rng.permutation(len(windows))
    for batch in order[: len(order) // 16 * 16].reshape(-1, 16):
        model, state, loss = step(model, state, windows[batch])
written = list(b"And the king ")
logits, memory = model(jnp.array(written))
forward = eqx.filter_jit(model)
for _ in range(100):
    logits = np.asarray(logits[-1], np.float64)
    chances = np.exp(logits - logits.max())
    written.append(int(rng.choice(256, p=chances / chances.sum())))
    logits, memory = forward(jnp.array(written[-1:]), memory)
print(loss, bytes(written).decode(errors="replace"))
