"""A command-line trainer with a config on standard input, logging, tqdm-like output on stderr, and a config of types."""

import dataclasses
import json
import logging
import sys

import torch
from torch import nn


@dataclasses.dataclass
class Config:
    steps: int = 30
    width: int = 16
    lr: float = 1e-3


logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
log = logging.getLogger(__name__)
config = Config(**json.loads(sys.stdin.read() or "{}"))
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
net = nn.GRU(1, config.width, num_layers=2, batch_first=True)
head = torch.jit.script(nn.Linear(config.width, 1))
optimizer = torch.optim.NAdam([*net.parameters(), *head.parameters()], lr=config.lr, foreach=True)
wave = torch.sin(torch.arange(200.0) / 7)
for step in range(config.steps):
    at = torch.randint(0, 150, (8,))
    window = torch.stack([wave[i : i + 40] for i in at])[..., None]
    hidden, _ = net(window[:, :-1])
    loss = nn.functional.huber_loss(head(hidden), window[:, 1:])
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    sys.stderr.write(f"\r{step}/{config.steps}")
log.info("done %s %s", config, loss.item().hex())
