"""Two optimizers: one critic step (or as many as asked for) to one generator step; no DataLoader."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
N_CRITIC = int(sys.argv[1])
critic, generator = nn.Linear(8, 1), nn.Linear(4, 8)
critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
for _ in range(30):
    for _ in range(N_CRITIC):
        critic_optimizer.zero_grad()
        fake = generator(torch.randn(16, 4)).detach()
        loss = critic(fake).mean() - critic(torch.randn(16, 8)).mean()
        loss.backward()
        critic_optimizer.step()
    generator_optimizer.zero_grad()
    loss = -critic(generator(torch.randn(16, 4))).mean()
    loss.backward()
    generator_optimizer.step()
print("loss", loss.item().hex())
