"""A GAN with two optimizers per iteration, a real and a fake pass, as in the tutorials."""

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(True), nn.Linear(32, 16), nn.Tanh())
D = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optD = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
optG = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
loader = torch.utils.data.DataLoader(torch.randn(320, 16), batch_size=8, shuffle=True, drop_last=True)
for i, real in enumerate(loader):
    D.zero_grad()
    errD_real = criterion(D(real).view(-1), torch.ones(8))
    errD_real.backward()
    fake = G(torch.randn(8, 8))
    errD_fake = criterion(D(fake.detach()).view(-1), torch.zeros(8))
    errD_fake.backward()
    optD.step()
    G.zero_grad()
    errG = criterion(D(fake).view(-1), torch.ones(8))
    errG.backward()
    optG.step()
    if i % 10 == 0:
        print(f"[{i}/{len(loader)}] Loss_D: {(errD_real + errD_fake).item():.6f} Loss_G: {errG.item():.6f}")
print(errG.item().hex())
