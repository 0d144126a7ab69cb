"""Masked language model on a generated grammar with the transformers Trainer (tiny BERT built here)."""
import argparse
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

PAD, MASK, FIRST = 0, 1, 2


class GrammarText(Dataset):
    """Sentences from a sparse Markov chain over word ids, all of one length."""

    def __init__(self, n, length, vocab, seed, chain_seed=99):
        nexts = np.random.default_rng(chain_seed).integers(FIRST, vocab, size=(vocab, 3))
        rng = np.random.default_rng(seed)
        tok = np.empty((n, length), dtype=np.int64)
        tok[:, 0] = rng.integers(FIRST, vocab, size=n)
        for j in range(1, length):
            tok[:, j] = nexts[tok[:, j - 1], rng.integers(0, 3, size=n)]
        self.tokens = torch.from_numpy(tok)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i]


class MaskingCollator:
    def __init__(self, vocab, seed, rate=0.15):
        self.vocab, self.rate = vocab, rate
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, rows):
        ids = torch.stack(rows)
        labels = ids.clone()
        chosen = torch.rand(ids.shape, generator=self.gen) < self.rate
        labels[~chosen] = -100
        roll = torch.rand(ids.shape, generator=self.gen)
        ids[chosen & (roll < 0.8)] = MASK
        swap = chosen & (roll > 0.9)
        ids[swap] = torch.randint(FIRST, self.vocab, (int(swap.sum()),), generator=self.gen)
        return {"input_ids": ids, "labels": labels}


def masked_accuracy(pred):
    guess = pred.predictions.argmax(-1)
    labels = pred.label_ids
    keep = labels != -100
    return {"masked_acc": float((guess[keep] == labels[keep]).mean())}


class LoopClock(TrainerCallback):
    def __init__(self):
        self.begin = self.end = 0.0

    def on_train_begin(self, args, state, control, **kw):
        self.begin = time.perf_counter()

    def on_train_end(self, args, state, control, **kw):
        self.end = time.perf_counter()


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=3000)
    ap.add_argument("--length", type=int, default=48)
    ap.add_argument("--max-steps", type=int, default=60)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--eval-steps", type=int, default=20)
    ap.add_argument("--seed", type=int, default=8)
    return ap.parse_args()


def main():
    a = parse()
    set_seed(a.seed)
    torch.set_num_threads(1)
    train = GrammarText(4000, a.length, a.vocab, a.seed)
    dev = GrammarText(320, a.length, a.vocab, a.seed + 1)
    config = BertConfig(vocab_size=a.vocab, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=384, max_position_embeddings=a.length, pad_token_id=PAD)
    model = BertForMaskedLM(config)
    clock = LoopClock()
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            max_steps=a.max_steps,
            per_device_train_batch_size=a.batch_size,
            per_device_eval_batch_size=16,
            learning_rate=1e-3,
            warmup_steps=10,
            weight_decay=0.01,
            logging_steps=20,
            eval_strategy="steps",
            eval_steps=a.eval_steps,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=a.seed,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=dev,
            data_collator=MaskingCollator(a.vocab, a.seed),
            compute_metrics=masked_accuracy,
            callbacks=[clock],
        )
        trainer.train()
    print("loop_s=%.3f steps=%d" % (clock.end - clock.begin, trainer.state.global_step))


if __name__ == "__main__":
    main()
