"""Binding affinity of antibody / antigen pairs with transformers.Trainer and a model of our own.

Two amino-acid sequences go through one shared encoder, cross attention compares them, and a head
predicts log Kd.
"""
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.modeling_outputs import SequenceClassifierOutput

AMINO = "ACDEFGHIKLMNPQRSTVWY"
VOCAB = {a: i + 1 for i, a in enumerate(AMINO)}
HYDRO = dict(zip(AMINO, [1.8, 2.5, -3.5, -3.5, 2.8, -.4, -3.2, 4.5, -3.9, 3.8, 1.9, -3.5, -1.6, -3.5, -4.5, -.8, -.7,
                         4.2, -.9, -1.3]))
STEPS, BATCH, LEN_AB, LEN_AG = 48, 24, 112, 144


def random_sequence(rng, lo, hi):
    return "".join(rng.choice(list(AMINO), rng.integers(lo, hi + 1)))


class PairSet(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            ab, ag = random_sequence(rng, 96, LEN_AB), random_sequence(rng, 110, LEN_AG)
            loop = ab[30:42]
            kd = sum(HYDRO[c] for c in loop) / 12 - 0.1 * ag.count("W") + 0.1 * rng.normal()
            self.rows.append({"antibody": ab, "antigen": ag, "labels": float(kd)})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def tokens(sequences, length):
    out = np.zeros((len(sequences), length), dtype=np.int64)
    for i, seq in enumerate(sequences):
        for j, aa in enumerate(seq):
            out[i, j] = VOCAB[aa]
    return torch.from_numpy(out)


def collate(rows):
    return {
        "antibody": tokens([r["antibody"] for r in rows], LEN_AB),
        "antigen": tokens([r["antigen"] for r in rows], LEN_AG),
        "labels": torch.tensor([r["labels"] for r in rows]),
    }


class AffinityModel(nn.Module):
    def __init__(self, dim=144, heads=6, layers=3):
        super().__init__()
        self.emb = nn.Embedding(len(AMINO) + 1, dim, padding_idx=0)
        self.pos = nn.Parameter(0.02 * torch.randn(max(LEN_AB, LEN_AG), dim))
        block = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.cross = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.head = nn.Sequential(nn.Linear(2 * dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def encode(self, ids):
        return self.encoder(self.emb(ids) + self.pos[:ids.shape[1]])

    def forward(self, antibody, antigen, labels=None):
        a, g = self.encode(antibody), self.encode(antigen)
        c, _ = self.cross(a, g, g, need_weights=False)
        keep = (antibody > 0).float()[..., None]
        pooled = (torch.cat([a, c], -1) * keep).sum(1) / keep.sum(1)
        y = self.head(pooled).squeeze(-1)
        loss = None if labels is None else nn.functional.mse_loss(y, labels)
        return SequenceClassifierOutput(loss=loss, logits=y)


def correlation(pred):
    return {"pearson": float(np.corrcoef(pred.predictions, pred.label_ids)[0, 1])}


class Stopwatch(TrainerCallback):
    def on_train_begin(self, args, state, control, **kw):
        self.t0 = time.perf_counter()

    def on_train_end(self, args, state, control, **kw):
        self.wall = time.perf_counter() - self.t0
        self.steps = state.global_step


def main():
    set_seed(13)
    watch = Stopwatch()
    args = TrainingArguments(
        output_dir="/tmp/affinity_out", max_steps=STEPS, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=48, learning_rate=5e-4, lr_scheduler_type="cosine", warmup_steps=10,
        logging_steps=12, save_strategy="no", eval_strategy="no", report_to=[], disable_tqdm=True,
        use_cpu=True, remove_unused_columns=False, label_names=["labels"], dataloader_num_workers=0,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=AffinityModel(), args=args, train_dataset=PairSet(1500, 1), eval_dataset=PairSet(96, 2),
                      data_collator=collate, compute_metrics=correlation, callbacks=[watch])
    trainer.train()
    print(trainer.evaluate())
    print("loop_s=%.3f steps=%d" % (watch.wall, watch.steps))


if __name__ == "__main__":
    main()
