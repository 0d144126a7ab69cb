"""A training whose 23rd step ends with an evaluation in a loop of very small operators."""

import time

import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
score = torch.ones(4)
for index in range(40):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)
    if index == 22:
        with torch.no_grad():
            for _ in range(200_000):
                score = score * 1.0
