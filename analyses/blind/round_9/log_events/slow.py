"""Next-event model for server logs: event templates as tokens, a small GPT-2, Hugging Face Trainer.

A line is suspicious if its template isn't among the k most probable ones, so hit@1 and hit@5 are watched.
"""
import argparse
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class LogWindows(Dataset):
    """Windows over the stream of a host; workflows (fixed chains of events) are interleaved."""

    def __init__(self, n_windows, length, n_events, seed):
        chains = np.random.default_rng(1).integers(0, n_events, (n_events // 8, 8))
        rng = np.random.default_rng(seed)
        total = n_windows * length
        weights = 1.0 / np.arange(1, len(chains) + 1)
        weights /= weights.sum()
        stream = np.empty(total, np.int64)
        active = [[int(c), 0] for c in rng.choice(len(chains), 3, p=weights)]
        picks = rng.integers(0, 3, total)
        fresh = rng.choice(len(chains), total, p=weights)
        for i in range(total):
            slot = active[picks[i]]
            stream[i] = chains[slot[0], slot[1]]
            slot[1] += 1
            if slot[1] == 8:
                active[picks[i]] = [int(fresh[i]), 0]
        self.windows = torch.from_numpy(stream).view(n_windows, length)

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        return {"input_ids": self.windows[i], "labels": self.windows[i]}


def stack(examples):
    ids = torch.stack([e["input_ids"] for e in examples])
    return {"input_ids": ids, "labels": ids}


def compute_metrics(pred):
    logits = torch.from_numpy(pred.predictions)[:, :-1]
    target = torch.from_numpy(pred.label_ids)[:, 1:]
    top = logits.topk(5, dim=-1).indices
    hits = top == target.unsqueeze(-1)
    return {"hit1": hits[..., 0].float().mean().item(), "hit5": hits.any(-1).float().mean().item()}


def build_model(args):
    config = GPT2Config(
        vocab_size=args.events, n_positions=args.window, n_embd=96, n_layer=2, n_head=4,
        bos_token_id=None, eos_token_id=None, use_cache=False)
    return GPT2LMHeadModel(config)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--events", type=int, default=4000)
    ap.add_argument("--window", type=int, default=48)
    ap.add_argument("--train-windows", type=int, default=1500)
    ap.add_argument("--eval-windows", type=int, default=192)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--eval-steps", type=int, default=10)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=31)
    args = ap.parse_args()

    set_seed(args.seed)
    train_set = LogWindows(args.train_windows, args.window, args.events, args.seed)
    eval_set = LogWindows(args.eval_windows, args.window, args.events, args.seed + 1)
    model = build_model(args)

    with tempfile.TemporaryDirectory() as out:
        training_args = TrainingArguments(
            output_dir=out,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=16,
            learning_rate=args.lr,
            warmup_steps=8,
            weight_decay=0.01,
            eval_strategy="steps",
            eval_steps=args.eval_steps,
            logging_steps=args.eval_steps,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=args.seed,
        )
        trainer = Trainer(
            model=model,
            args=training_args,
            train_dataset=train_set,
            eval_dataset=eval_set,
            data_collator=stack,
            compute_metrics=compute_metrics,
        )
        start = time.perf_counter()
        trainer.train()
        elapsed = time.perf_counter() - start
    print(f"loop_s={elapsed:.3f} steps={trainer.state.global_step}")


if __name__ == "__main__":
    main()
