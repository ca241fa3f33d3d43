from sklearn.datasets import load_digits
from volumetric.builders import cnn
from volumetric.train import train

x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 1, 8, 8) / 16
network = cnn((1, 8, 8), 10, channels=(16, 32), pool="max")
result = train(network, x[:1500], y[:1500], epochs=15, lr=3e-3, batch_size=32, loss="cross_entropy")
print((result.predict(x[1500:]).argmax(1) == y[1500:]).mean())
