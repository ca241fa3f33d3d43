from pathlib import Path

import volumetric
from volumetric.layers import LSTM, Dense, Embedding
from volumetric.train import token_windows, train

x, y = token_windows(Path("esther.txt").read_bytes(), 64)
network = volumetric.sequential(Embedding(256, 64), LSTM(64, 128), Dense(128, 256))
result = train(network, x, y, epochs=15, lr=1e-2, batch_size=16, loss="cross_entropy")
result.save("text", tokenizer="bytes")
written = volumetric.load("text").generate("And the king ", max_tokens=100, temperature=1.0)
print(result.loss, "And the king " + written.text)
