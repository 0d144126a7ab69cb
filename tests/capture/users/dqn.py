"""Reinforcement learning: acting and learning take turns, a replay buffer, a target network, no DataLoader."""

import copy
import random
from collections import deque

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target = copy.deepcopy(policy)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
memory = deque(maxlen=500)
state = torch.randn(4)
total = 0.0
for step in range(120):
    if random.random() < 0.3:
        action = random.randrange(2)
    else:
        with torch.no_grad():
            action = policy(state).argmax().item()
    following = torch.tanh(state + 0.1 * torch.randn(4) + (0.1 if action else -0.1))
    reward = -following.abs().sum().item()
    memory.append((state, action, following, reward))
    state = following
    total += reward
    if len(memory) < 32:
        continue
    states, actions, followings, rewards = zip(*random.sample(memory, 32))
    values = policy(torch.stack(states)).gather(1, torch.tensor(actions)[:, None]).squeeze(1)
    with torch.no_grad():
        best = target(torch.stack(followings)).max(1).values
    loss = nn.functional.smooth_l1_loss(values, torch.tensor(rewards) + 0.99 * best)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    if step % 10 == 0:
        weights = target.state_dict()
        for name, value in policy.state_dict().items():
            weights[name] = value * 0.1 + weights[name] * 0.9
        target.load_state_dict(weights)
print(total.hex(), loss.item().hex())
