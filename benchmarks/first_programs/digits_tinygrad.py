from sklearn.datasets import load_digits
from tinygrad import Context, Tensor, TinyJit, dtypes
from tinygrad.nn import Conv2d, Linear, optim, state

x, y = load_digits(return_X_y=True)
x, y = Tensor(x, dtype=dtypes.float32).reshape(-1, 1, 8, 8) / 16, Tensor(y, dtype=dtypes.int32)
layers = [
    Conv2d(1, 16, 3, padding=1), Tensor.relu, Tensor.max_pool2d,
    Conv2d(16, 32, 3, padding=1), Tensor.relu, Tensor.max_pool2d,
    lambda x: x.flatten(1), Linear(128, 10),
]  # fmt: skip
optimizer = optim.AdamW(state.get_parameters(layers), lr=3e-3)


@TinyJit
@Context(TRAINING=1)
def step():
    batch = Tensor.randint(32, high=1500)
    optimizer.zero_grad()
    loss = x[batch].sequential(layers).sparse_categorical_crossentropy(y[batch]).backward()
    return loss.realize(*optimizer.schedule_step())


for update in range(15 * 47):
    step()
print((x[1500:].sequential(layers).argmax(1) == y[1500:]).mean().item())
