import time
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
torch.set_num_threads(1)

# ---- data: 32x32 pictures of soft blobs
N, nz, ngf, ndf = 1600, 48, 40, 24
yy, xx = np.mgrid[0:32, 0:32] / 31.0
imgs = np.zeros((N, 1, 32, 32), np.float32)
for i in range(N):
    for _ in range(np.random.randint(1, 4)):
        cx, cy, s = np.random.rand(), np.random.rand(), 0.05 + 0.1 * np.random.rand()
        imgs[i, 0] += np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / s ** 2)
imgs = np.clip(imgs, 0, 1) * 2 - 1
loader = DataLoader(TensorDataset(torch.from_numpy(imgs)), batch_size=32, shuffle=True, drop_last=True)

netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 4), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False), nn.Flatten(0),
)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)


netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCEWithLogitsLoss()
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed = torch.randn(16, nz, 1, 1)
samples = []


def update(real):
    b = real.size(0)
    ones, zeros = torch.full((b,), 0.9), torch.zeros(b)
    fake = netG(torch.randn(b, nz, 1, 1))

    # discriminator
    optD.zero_grad()
    lossD = criterion(netD(real), ones) + criterion(netD(fake.detach()), zeros)
    lossD.backward()
    optD.step()

    # generator
    optG.zero_grad()
    lossG = criterion(netD(fake), ones)
    lossG.backward()
    optG.step()
    return lossD.detach(), lossG.detach()


for _ in range(3):
    update(torch.from_numpy(imgs[:32]))

t0 = time.perf_counter()
steps = 0
for epoch in range(2):
    sumD = sumG = 0.0
    for (real,) in loader:
        d, g = update(real)
        sumD, sumG = sumD + d, sumG + g
        steps += 1
    with torch.no_grad():
        samples.append(netG(fixed).mul(127.5).add(127.5).byte())
    print("epoch %d  D %.3f  G %.3f" % (epoch, sumD / len(loader), sumG / len(loader)))
print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")
