from pathlib import Path

import torch
from torch import nn

text = torch.tensor(list(Path("esther.txt").read_bytes()))
windows = text[: len(text) // 65 * 65].reshape(-1, 65)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.head = (
            nn.Embedding(256, 64),
            nn.LSTM(64, 128, batch_first=True),
            nn.Linear(128, 256),
        )

    def forward(self, ids, state=None):
        rows, state = self.lstm(self.embedding(ids), state)
        return self.head(rows), state


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for epoch in range(15):
    for batch in windows[torch.randperm(len(windows))].split(16):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[:, :-1])[0].flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
written, state = list(b"And the king "), None
logits, state = model(torch.tensor([written]))
for _ in range(100):
    written.append(torch.multinomial(logits[0, -1].softmax(0), 1).item())
    logits, state = model(torch.tensor([written[-1:]]), state)
print(loss.item(), bytes(written).decode(errors="replace"))
