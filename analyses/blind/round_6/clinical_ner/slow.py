"""Token classification on (synthetic) clinical notes: find names, dates, places, ids for de-identification.

Hugging Face Trainer, small BERT from scratch, dynamic padding.
"""
import os
import random
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForTokenClassification, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)

LABELS = ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE", "B-LOC", "I-LOC", "B-ID", "I-ID"]
VOCAB = 3000
SPAN_WORDS = {"NAME": range(100, 400), "DATE": range(400, 500), "LOC": range(500, 700), "ID": range(700, 900)}
CUES = {"NAME": 50, "DATE": 51, "LOC": 52, "ID": 53}


def make_note(rng):
    """A note is filler words with cue + span sequences; some span words also occur as filler."""
    ids, tags = [1], [0]
    target = int(min(110, max(20, rng.gauss(60, 22))))
    while len(ids) < target:
        if rng.random() < 0.12:
            kind = rng.choice(list(SPAN_WORDS))
            if rng.random() < 0.8:
                ids.append(CUES[kind])
                tags.append(0)
            for k in range(rng.randint(1, 3)):
                ids.append(rng.choice(SPAN_WORDS[kind]))
                tags.append(LABELS.index(("B-" if k == 0 else "I-") + kind))
        else:
            ids.append(rng.randrange(100, 900) if rng.random() < 0.03 else rng.randrange(900, VOCAB))
            tags.append(0)
    ids.append(2)
    tags.append(0)
    return ids, tags


class NotesDataset(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = [make_note(rng) for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids, tags = self.items[i]
        return {"input_ids": ids, "labels": tags}


def collate(features):
    width = max(len(f["input_ids"]) for f in features)
    ids = torch.zeros(len(features), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for i, f in enumerate(features):
        n = len(f["input_ids"])
        ids[i, :n] = torch.tensor(f["input_ids"])
        mask[i, :n] = 1
        labels[i, :n] = torch.tensor(f["labels"])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def compute_metrics(p):
    logits = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
    pred = np.argmax(logits, axis=-1)
    keep = p.label_ids != -100
    pred, gold = pred[keep], p.label_ids[keep]
    tp = int(((pred == gold) & (gold != 0)).sum())
    prec = tp / max(1, int((pred != 0).sum()))
    rec = tp / max(1, int((gold != 0).sum()))
    return {"precision": prec, "recall": rec, "f1": 2 * prec * rec / max(1e-9, prec + rec)}


class LoopClock(TrainerCallback):
    def __init__(self):
        self.start = self.stop = None

    def on_step_begin(self, args, state, control, **kw):
        if self.start is None:
            self.start = time.perf_counter()

    def on_evaluate(self, args, state, control, **kw):
        self.stop = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kw):
        self.stop = time.perf_counter()
        show = {k: round(v, 4) for k, v in (logs or {}).items() if k in ("loss", "eval_loss", "eval_f1")}
        if show:
            print(f"[{state.global_step}] {show}", flush=True)


def build_model():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=128,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={l: i for i, l in enumerate(LABELS)},
        output_hidden_states=True,
    )
    return BertForTokenClassification(config)


def main():
    set_seed(1)
    torch.set_num_threads(1)
    train, dev = NotesDataset(2400, seed=1), NotesDataset(448, seed=2)
    clock = LoopClock()
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            max_steps=90,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=8,
            learning_rate=6e-4,
            warmup_steps=20,
            weight_decay=0.01,
            optim="adamw_torch_fused",
            eval_strategy="steps",
            eval_steps=30,
            logging_steps=30,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=1,
        )
        trainer = Trainer(model=build_model(), args=args, train_dataset=train, eval_dataset=dev,
                          data_collator=collate, compute_metrics=compute_metrics, callbacks=[clock])
        trainer.train()
    print("loop_s=%.3f steps=%d" % (clock.stop - clock.start, trainer.state.global_step))


if __name__ == "__main__":
    main()
