import volumetric
from volumetric.train import train

x, y = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]
network = volumetric.sequential(2, 8, 1, activation="tanh")
result = train(network, x, y, epochs=300, lr=0.05)
print(result.predict(x).round(2).ravel().tolist())
