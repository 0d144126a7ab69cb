"""A trainer with a state, arguments and callbacks, as Hugging Face has it; one callback logs what nobody reads."""

from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Arguments:
    max_steps: int = 44
    batch_size: int = 64
    learning_rate: float = 1e-3


@dataclass
class State:
    step: int = 0
    log: list = field(default_factory=list)


class Callback:
    def on_step_begin(self, state, **kwargs):
        pass

    def on_step_end(self, state, **kwargs):
        pass


class KeepLoss(Callback):
    def on_step_end(self, state, loss=None, **kwargs):
        state.log.append(loss.detach())


class GradientHistogram(Callback):
    def on_step_end(self, state, model=None, **kwargs):
        for parameter in model.parameters():
            values = parameter.grad.flatten().tolist()  # slow
        state.last = len(values)


class Trainer:
    def __init__(self, model, args, callbacks):
        self.model, self.args, self.callbacks, self.state = model, args, callbacks, State()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    def call(self, event, **kwargs):
        for callback in self.callbacks:
            getattr(callback, event)(self.state, model=self.model, **kwargs)

    def compute_loss(self, inputs):
        return self.model(inputs["x"]).square().mean()

    def training_step(self, inputs):
        self.model.train()
        loss = self.compute_loss(inputs)
        loss.backward()
        return loss

    def train(self):
        while self.state.step < self.args.max_steps:
            self.call("on_step_begin")
            loss = self.training_step({"x": torch.randn(self.args.batch_size, 256)})
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)
            self.state.step += 1
            self.call("on_step_end", loss=loss)
        return self.state.log[-1].item()


net = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256))
Trainer(net, Arguments(), [KeepLoss(), GradientHistogram()]).train()
