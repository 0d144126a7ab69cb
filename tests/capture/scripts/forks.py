"""A loop that forks inside the window and after it; the children end in every way Python has."""

import os  # noqa: I001
import sys

import tests.capture.no_dynamo  # noqa: F401 - before torch
import torch
from torch import nn

ENDS = ["raise", "again", "end"]


def child(end):
    print("child", end)
    if end.startswith("exit"):
        sys.exit(int(end[5:]))
    if end == "raise":
        raise RuntimeError("as a script may")
    if end == "again":
        print("status", fork("exit 9"))
        sys.exit(8)


def fork(end):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child(end)
        raise SystemExit  # the script's own end, from wherever it was forked
    return os.waitpid(pid, 0)[1]


model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 17:
        print("inside", fork("exit 5"))
for end in ENDS:
    print(end, fork(end))
print("parent")
