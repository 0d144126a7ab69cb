"""Solubility from SMILES-like strings: a small BERT with a regression head, trained with transformers.Trainer."""
import math
import os
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
from scipy.stats import spearmanr
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)

FRAGMENTS = {"C": 0.25, "CC": 0.5, "c1ccccc1": 1.4, "O": -0.9, "N": -0.7, "C(=O)O": -1.3, "Cl": 0.7, "F": 0.2,
             "S": 0.4, "C(C)": 0.6, "C#N": -0.3, "C(=O)N": -1.1, "OC": -0.4, "c1ccncc1": 0.3}
ALPHABET = sorted(set("".join(FRAGMENTS)))
PAD, CLS = 0, 1
CODE = {c: i + 2 for i, c in enumerate(ALPHABET)}


class Molecules(Dataset):
    """Random chains of fragments; the target is additive with a penalty for length and one interaction."""

    def __init__(self, n, seed, max_len=96):
        rng = np.random.default_rng(seed)
        names, values = list(FRAGMENTS), np.array(list(FRAGMENTS.values()))
        self.rows = []
        for _ in range(n):
            pick = rng.integers(len(names), size=rng.integers(12, 26))
            text = "".join(names[k] for k in pick)[:max_len - 1]
            y = -values[pick].sum() / 3 - 0.05 * len(pick) + 0.5 * ((pick == 2).any() and (pick == 5).any())
            ids = [CLS] + [CODE[c] for c in text]
            self.rows.append({"input_ids": ids, "labels": float((y + 1.5) / 1.5 + rng.normal(0, 0.1))})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    longest = max(len(r["input_ids"]) for r in rows)
    ids = torch.full((len(rows), longest), PAD)
    for i, r in enumerate(rows):
        ids[i, :len(r["input_ids"])] = torch.tensor(r["input_ids"])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(),
            "labels": torch.tensor([r["labels"] for r in rows])}


def compute_metrics(result):
    scores = result.predictions[0] if isinstance(result.predictions, tuple) else result.predictions
    scores, labels = scores.reshape(-1), result.label_ids.reshape(-1)
    return {"rmse": math.sqrt(float(np.mean((scores - labels) ** 2))),
            "spearman": float(spearmanr(scores, labels).statistic)}


class LoopClock(TrainerCallback):
    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 1:
            self.start = time.perf_counter()
        self.last_step = state.global_step

    def on_train_end(self, args, state, control, **kw):
        self.seconds = time.perf_counter() - self.start


class Report(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kw):
        print("step %d rmse %.3f spearman %.3f" % (state.global_step, metrics["eval_rmse"],
                                                   metrics["eval_spearman"]))


@torch.no_grad()
def layer_drift(model, batch):
    """How far the [CLS] vector moves from layer to layer: printed once, after training."""
    model.eval()
    states = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"],
                   output_hidden_states=True).hidden_states
    cls = torch.stack([h[:, 0] for h in states])
    return (cls[1:] - cls[:-1]).norm(dim=-1).mean(1)


def build_model():
    config = BertConfig(vocab_size=len(ALPHABET) + 2, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                        intermediate_size=384, max_position_embeddings=128, num_labels=1,
                        problem_type="regression", pad_token_id=PAD,
                        output_hidden_states=True)
    return BertForSequenceClassification(config)


def main():
    set_seed(17)
    train, valid = Molecules(3000, 1), Molecules(1024, 2)
    model = build_model()
    clock = LoopClock()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=80,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=16,
            learning_rate=4e-4,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            eval_strategy="steps",
            eval_steps=20,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_num_workers=0,
            seed=17,
        )
        trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=valid, data_collator=collate,
                          compute_metrics=compute_metrics, callbacks=[clock, Report()])
        trainer.train()
    drift = layer_drift(model, collate([valid[i] for i in range(64)]))
    print("drift per layer:", " ".join("%.2f" % d for d in drift))
    print("loop_s=%.3f steps=%d" % (clock.seconds, clock.last_step - 1))


if __name__ == "__main__":
    main()
