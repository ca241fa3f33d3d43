import gymnasium
import torch
from torch import nn

env = gymnasium.make("CartPole-v1")
policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)


def play(seed):
    observation, _ = env.reset(seed=seed)
    log_probs, done = [], False
    while not done:
        choice = torch.distributions.Categorical(logits=policy(torch.tensor(observation)))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        observation, _, fell, late, _ = env.step(action.item())
        done = fell or late
    return torch.stack(log_probs)


lengths = []
while sum(lengths[-20:]) < 20 * 475:
    log_probs = play(len(lengths))
    lengths.append(len(log_probs))
    returns = torch.tensor([(1 - 0.99 ** (len(log_probs) - t)) / 0.01 for t in range(len(log_probs))])
    loss = -(log_probs * (returns - returns.mean()) / (returns.std() + 1e-6)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(len(lengths), sum(len(play(10_000 + seed)) for seed in range(20)) / 20)
