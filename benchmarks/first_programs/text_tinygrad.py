from pathlib import Path

from tinygrad import Context, Tensor, TinyJit
from tinygrad.nn import Embedding, Linear, LSTMCell, optim, state

text = Tensor(list(Path("esther.txt").read_bytes()))
windows = text[: text.shape[0] // 65 * 65].reshape(-1, 65)


class Net:
    def __init__(self):
        self.embedding, self.lstm, self.head = Embedding(256, 64), LSTMCell(64, 128), Linear(128, 256)

    def __call__(self, ids, state=None):
        rows = []
        for t in range(ids.shape[1]):
            state = self.lstm(self.embedding(ids[:, t]), state)
            rows.append(state[0])
        return self.head(Tensor.stack(*rows, dim=1)), state


model = Net()
optimizer = optim.AdamW(state.get_parameters(model), lr=5e-3)


@TinyJit
@Context(TRAINING=1)
def step(batch):
    optimizer.zero_grad()
    loss = model(batch[:, :-1])[0].sparse_categorical_crossentropy(batch[:, 1:]).backward()
    return loss.realize(*optimizer.schedule_step())


for update in range(15 * (windows.shape[0] // 16)):
    loss = step(windows[Tensor.randint(16, high=windows.shape[0])].realize())
written, memory = list(b"And the king "), None
logits, memory = model(Tensor([written]))
for _ in range(100):
    written.append(logits[0, -1].softmax().multinomial().item())
    logits, memory = model(Tensor([written[-1:]]), memory)
print(loss.item(), bytes(written).decode(errors="replace"))
