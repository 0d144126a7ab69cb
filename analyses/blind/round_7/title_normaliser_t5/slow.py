"""Tiny T5 that rewrites messy product titles into canonical ones, trained with the Hugging Face Trainer."""
import argparse
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

PAD, EOS = 0, 1
FIRST_WORD = 4


class TitlePairs(Dataset):
    """Messy titles are canonical ones with synonyms, dropped and swapped words."""

    def __init__(self, n, vocab, canon, synonyms, src_len, tgt_len, rng):
        self.src = torch.full((n, src_len), PAD, dtype=torch.long)
        self.tgt = torch.full((n, tgt_len), -100, dtype=torch.long)
        zipf = 1.0 / np.arange(1, canon + 1)
        words = rng.choice(canon, size=(n, tgt_len - 1), p=zipf / zipf.sum())
        for i in range(n):
            length = rng.integers(tgt_len // 2, tgt_len)
            title = words[i, :length]
            messy = synonyms[title, rng.integers(synonyms.shape[1], size=length)]
            messy = messy[rng.random(length) > 0.05][: src_len - 1]
            if len(messy) > 3:
                j = rng.integers(len(messy) - 1)
                messy[[j, j + 1]] = messy[[j + 1, j]]
            self.src[i, : len(messy)] = torch.from_numpy(messy + FIRST_WORD)
            self.src[i, len(messy)] = EOS
            self.tgt[i, :length] = torch.from_numpy(title + FIRST_WORD)
            self.tgt[i, length] = EOS

    def __len__(self):
        return len(self.src)

    def __getitems__(self, idx):
        idx = torch.as_tensor(idx)
        return self.src[idx], self.tgt[idx]


def collate(batch):
    src, tgt = batch
    return {"input_ids": src, "attention_mask": (src != PAD).long(), "labels": tgt}


class LoopTimer(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.begin = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds = time.perf_counter() - self.begin
        self.steps = state.global_step


def title_scores(prediction):
    guess = prediction.predictions
    if isinstance(guess, tuple):
        guess = guess[0]
    guess = guess.argmax(-1)
    labels = prediction.label_ids
    keep = labels != -100
    right = (guess == labels) & keep
    return {
        "token_accuracy": float(right.sum() / keep.sum()),
        "exact_titles": float((right.sum(1) == keep.sum(1)).mean()),
    }


def build_model(args):
    config = T5Config(
        vocab_size=args.vocab,
        d_model=args.dim,
        d_kv=args.dim // 4,
        d_ff=2 * args.dim,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.05,
        decoder_start_token_id=PAD,
        pad_token_id=PAD,
        eos_token_id=EOS,
        use_cache=False,
    )
    return T5ForConditionalGeneration(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=6000)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--eval-steps", type=int, default=20)
    parser.add_argument("--eval-titles", type=int, default=1024)
    parser.add_argument("--out", default="/tmp/title_t5")
    args = parser.parse_args()

    torch.set_num_threads(1)
    set_seed(13)
    rng = np.random.default_rng(13)
    canon = (args.vocab - FIRST_WORD) // 3
    synonyms = rng.permutation(args.vocab - FIRST_WORD)[: canon * 3].reshape(canon, 3)
    shape = dict(vocab=args.vocab, canon=canon, synonyms=synonyms, src_len=20, tgt_len=16)
    train_set = TitlePairs(args.steps * args.batch, rng=rng, **shape)
    eval_set = TitlePairs(args.eval_titles, rng=rng, **shape)

    model = build_model(args)
    training_args = TrainingArguments(
        output_dir=args.out,
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        per_device_eval_batch_size=args.batch,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        eval_strategy="steps",
        eval_steps=args.eval_steps,
        logging_steps=args.eval_steps,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        seed=13,
    )
    timer = LoopTimer()
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=collate,
        compute_metrics=title_scores,
        callbacks=[timer],
    )
    trainer.train()
    print("loop_s=%.3f steps=%d" % (timer.seconds, timer.steps))


if __name__ == "__main__":
    main()
