"""Pre-train a tiny GPT-2 style model from scratch with the Hugging Face Trainer."""
import json
import os
import tempfile
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@dataclass
class ModelArguments:
    vocab_size: int = field(default=2048)
    n_layer: int = field(default=3)
    n_embd: int = field(default=128)
    n_head: int = field(default=4)
    block_size: int = field(default=128)


@dataclass
class RunArguments:
    num_blocks: int = field(default=2000)
    batch_size: int = field(default=8)
    max_steps: int = field(default=50)
    warm_steps: int = field(default=3, metadata={"help": "steps that are not timed"})
    learning_rate: float = field(default=6e-4)
    seed: int = field(default=42)


class MarkovBlocks(Dataset):
    """Packed blocks of a random first-order language with a Zipf-like unigram floor."""

    def __init__(self, n, block, vocab, seed):
        rng = np.random.default_rng(seed)
        successors = rng.integers(0, vocab, (vocab, 6))
        floor = (rng.pareto(1.1, n * block) * 8).astype(np.int64) % vocab
        choice = rng.integers(0, 6, n * block)
        use_floor = rng.random(n * block) < 0.15
        tokens = np.empty(n * block, dtype=np.int64)
        tok = 0
        for i in range(len(tokens)):
            tok = floor[i] if use_floor[i] else successors[tok, choice[i]]
            tokens[i] = tok
        self.blocks = torch.from_numpy(tokens).view(n, block)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i]}


class LoopTimer(TrainerCallback):
    def __init__(self, skip):
        self.skip, self.begin, self.end, self.steps = skip, None, None, 0

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.skip:
            self.begin = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.end = time.perf_counter()
        self.steps = state.global_step - self.skip


class TrainingMonitor(TrainerCallback):
    """Follows host memory and the norm of the embedding, one JSON record a line."""

    def __init__(self, path):
        self.path = path
        self.page = os.sysconf("SC_PAGE_SIZE")

    def resident_mb(self):
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * self.page / 2 ** 20

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % args.logging_steps:
            return
        record = {"step": state.global_step, "rss_mb": round(self.resident_mb(), 1),
                  "wte_norm": model.transformer.wte.weight.detach().norm().item()}
        with open(self.path, "a") as f:
            f.write(json.dumps(record) + "\n")


def main():
    model_args, run = HfArgumentParser((ModelArguments, RunArguments)).parse_args_into_dataclasses()
    set_seed(run.seed)
    torch.set_num_threads(1)
    config = GPT2Config(vocab_size=model_args.vocab_size, n_positions=model_args.block_size,
                        n_embd=model_args.n_embd, n_layer=model_args.n_layer, n_head=model_args.n_head,
                        bos_token_id=0, eos_token_id=0, use_cache=False)
    model = GPT2LMHeadModel(config)
    train_set = MarkovBlocks(run.num_blocks, model_args.block_size, model_args.vocab_size, run.seed)

    with tempfile.TemporaryDirectory() as out:
        timer = LoopTimer(run.warm_steps)
        training_args = TrainingArguments(
            output_dir=out, per_device_train_batch_size=run.batch_size, max_steps=run.max_steps + run.warm_steps,
            learning_rate=run.learning_rate, lr_scheduler_type="cosine", warmup_steps=10, weight_decay=0.1,
            logging_steps=20, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=run.seed,
            dataloader_pin_memory=False)
        monitor = TrainingMonitor(os.path.join(out, "monitor.jsonl"))
        trainer = Trainer(model=model, args=training_args, train_dataset=train_set, callbacks=[monitor, timer])
        result = trainer.train()
        with open(monitor.path) as f:
            print("monitor records:", sum(1 for _ in f))
    print("train loss %.4f, %.2fM parameters" % (result.training_loss, model.num_parameters() / 1e6))
    print("loop_s=%.3f steps=%d" % (timer.end - timer.begin, timer.steps))


if __name__ == "__main__":
    main()
