"""A teacher is warmed up for some steps, then a student learns for far longer: arguments are the steps of both."""

import sys
import time

import torch

teacher, student = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)


def train(model, n_steps, step_s):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(n_steps):
        time.sleep(step_s)
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


train(teacher, int(sys.argv[1]), 0.0)
train(student, int(sys.argv[2]), 0.004)
print("done")
