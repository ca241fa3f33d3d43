import equinox as eqx
import jax
import jax.numpy as jnp
import optax

x = jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=jnp.float32)
y = jnp.array([[0], [1], [1], [0]], dtype=jnp.float32)
model = eqx.nn.MLP(2, 1, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
optimizer = optax.adamw(0.05)
state = optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_jit
def step(model, state):
    grads = eqx.filter_grad(lambda model: jnp.mean((jax.vmap(model)(x) - y) ** 2))(model)
    updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), state


for epoch in range(300):
    model, state = step(model, state)
print(jax.vmap(model)(x).round(2).ravel().tolist())
