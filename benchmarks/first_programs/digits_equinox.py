import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 1, 8, 8).astype(np.float32) / 16
keys = jax.random.split(jax.random.key(0), 3)
model = eqx.nn.Sequential([
    eqx.nn.Conv2d(1, 16, 3, padding=1, key=keys[0]), eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2),
    eqx.nn.Conv2d(16, 32, 3, padding=1, key=keys[1]), eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2),
    eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(128, 10, key=keys[2]),
])  # fmt: skip
optimizer = optax.adamw(3e-3)
state = optimizer.init(eqx.filter(model, eqx.is_array))


def loss(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), y).mean()


@eqx.filter_jit
def step(model, state, x, y):
    updates, state = optimizer.update(eqx.filter_grad(loss)(model, x, y), state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), state


rng = np.random.default_rng(0)
for epoch in range(15):
    for batch in rng.permutation(1500)[:1472].reshape(-1, 32):
        model, state = step(model, state, x[batch], y[batch])
print((jax.vmap(model)(x[1500:]).argmax(1) == y[1500:]).mean())
