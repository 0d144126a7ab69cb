"""Weight averaging, a schedule, hooks of the user's own on modules and gradients, deep copies and pickles of everything."""

import copy
import io
import pickle

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
seen = []
model.register_forward_hook(lambda *_: seen.append("forward"))
model[0].weight.register_hook(lambda grad: grad.clamp(-1, 1))
averaged = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
schedule = SWALR(optimizer, swa_lr=1e-3, anneal_epochs=5)
calls = []
optimizer.register_step_post_hook(lambda *_: calls.append(1))
for step in range(40):
    x = torch.randn(16, 8)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    averaged.update_parameters(model)
    schedule.step()
    if step % 10 == 5:
        model._forward_hooks.clear()
        again = pickle.loads(pickle.dumps(copy.deepcopy(optimizer)))
        torch.save(copy.deepcopy(model), io.BytesIO())
        model.register_forward_hook(lambda *_: seen.append("forward"))
print(
    len(seen), len(calls), type(again).__name__, again.step.__name__, loss.item().hex(), averaged(x).sum().item().hex()
)
