"""Base-resolution binding profiles from DNA, trained with the Hugging Face Trainer."""
import os
import tempfile
import time
from dataclasses import dataclass
from typing import Optional

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)
from transformers.utils import ModelOutput

LENGTH = 400
MOTIFS = ["TGACTCA", "CACGTG", "GATAAG"]
CODE = {c: i for i, c in enumerate("ACGT")}


class DNAConfig(PretrainedConfig):
    model_type = "dna-profile"

    def __init__(self, width=48, layers=4, count_weight=0.5, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.layers = layers
        self.count_weight = count_weight


@dataclass
class ProfileOutput(ModelOutput):
    loss: Optional[torch.Tensor] = None
    profile: Optional[torch.Tensor] = None
    log_count: Optional[torch.Tensor] = None
    features: Optional[torch.Tensor] = None


class DilatedBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)

    def forward(self, x):
        return x + torch.relu(self.conv(x))


class ProfileNet(PreTrainedModel):
    config_class = DNAConfig

    def __init__(self, config):
        super().__init__(config)
        w = config.width
        self.stem = nn.Conv1d(4, w, 15, padding=7)
        self.tower = nn.ModuleList(DilatedBlock(w, 2 ** (i + 1)) for i in range(config.layers))
        self.profile_head = nn.Conv1d(w, 1, 25, padding=12)
        self.count_head = nn.Linear(w, 1)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, tokens=None, labels=None):
        x = nn.functional.one_hot(tokens, 4).to(torch.float32).transpose(1, 2)
        x = torch.relu(self.stem(x))
        for block in self.tower:
            x = block(x)
        profile = self.profile_head(x).squeeze(1)
        log_count = self.count_head(x.mean(-1)).squeeze(-1)
        loss = None
        if labels is not None:
            total = labels.sum(-1)
            shape = -(labels * profile.log_softmax(-1)).sum(-1) / total.clamp(min=1)
            count = (log_count - torch.log1p(total)).square()
            loss = shape.mean() + self.config.count_weight * count.mean()
        return ProfileOutput(loss=loss, profile=profile, log_count=log_count, features=x)


class PeakDataset(Dataset):
    """Random sequences with planted motifs; reads pile up around each of them."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        seq = rng.integers(0, 4, size=(n, LENGTH))
        height = np.full((n, LENGTH), 0.02)
        grid = np.arange(LENGTH)
        for i in range(n):
            for _ in range(rng.integers(1, 4)):
                k = rng.integers(len(MOTIFS))
                motif = np.array([CODE[c] for c in MOTIFS[k]])
                at = rng.integers(20, LENGTH - 30)
                seq[i, at:at + len(motif)] = motif
                height[i] += (k + 1) * np.exp(-0.5 * ((grid - at - 3) / (4.0 + 2 * k)) ** 2)
        self.tokens = torch.from_numpy(seq)
        self.reads = torch.from_numpy(rng.poisson(height).astype(np.float32))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"tokens": self.tokens[i], "labels": self.reads[i]}


def pearson(a, b, axis=-1):
    a = a - a.mean(axis=axis, keepdims=True)
    b = b - b.mean(axis=axis, keepdims=True)
    den = np.sqrt((a ** 2).sum(axis) * (b ** 2).sum(axis)) + 1e-9
    return (a * b).sum(axis) / den


def compute_metrics(pred):
    profile, log_count = pred.predictions[:2]
    reads = pred.label_ids
    p = np.exp(profile - profile.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return {"profile_r": float(pearson(p, reads).mean()),
            "count_r": float(pearson(log_count, np.log1p(reads.sum(-1))))}


class LoopClock(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.begin = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.elapsed = time.perf_counter() - self.begin
        self.steps = state.global_step


def main():
    torch.set_num_threads(1)
    set_seed(13)
    train_set = PeakDataset(3000, seed=0)
    eval_set = PeakDataset(1536, seed=1)
    config = DNAConfig()
    model = ProfileNet(config)
    clock = LoopClock()
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            max_steps=120,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=32,
            learning_rate=2e-3,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            eval_strategy="steps",
            eval_steps=40,
            logging_steps=40,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=13,
        )
        trainer = Trainer(model=model, args=args, train_dataset=train_set, eval_dataset=eval_set,
                          compute_metrics=compute_metrics, callbacks=[clock])
        trainer.train()
    print("loop_s=%.3f steps=%d" % (clock.elapsed, clock.steps))


if __name__ == "__main__":
    main()
