from tinygrad import Context, Tensor, TinyJit
from tinygrad.nn import Linear, optim, state

x = Tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = Tensor([[0.0], [1.0], [1.0], [0.0]])
layers = [Linear(2, 8), Tensor.tanh, Linear(8, 1)]
optimizer = optim.AdamW(state.get_parameters(layers), lr=0.05)


@TinyJit
@Context(TRAINING=1)
def step():
    optimizer.zero_grad()
    loss = (x.sequential(layers) - y).square().mean().backward()
    return loss.realize(*optimizer.schedule_step())


for epoch in range(300):
    step()
print([round(value, 2) for value in x.sequential(layers).flatten().tolist()])
