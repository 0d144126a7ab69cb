"""Supervised tuning of a small GPT-2 on question/answer records (only the answers carry loss), with Accelerate."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup


@dataclass
class Settings:
    vocab: int = 8000
    width: int = 128
    layers: int = 3
    heads: int = 4
    max_len: int = 160
    records: int = 1200
    batch: int = 8
    steps: int = 100
    lr: float = 6e-4
    seed: int = 11


CFG = Settings()
PAD, SEP, END = 0, 1, 2
IGNORE = -100


class QADataset(Dataset):
    """A context of facts, a question about one of them, the answer from the fact."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.items = []
        weights = 1.0 / np.arange(1, cfg.vocab - 9)
        weights /= weights.sum()
        for _ in range(cfg.records):
            context = rng.choice(cfg.vocab - 10, size=rng.integers(96, 112), p=weights) + 10
            where = rng.integers(0, len(context) - 24)
            length = rng.integers(12, 20)
            question = context[where: where + 3]
            answer = context[where + 3: where + 3 + length]
            prompt = np.concatenate([context, [SEP], question, [SEP]])
            ids = np.concatenate([prompt, answer, [END]])[: cfg.max_len]
            labels = ids.copy()
            labels[: len(prompt)] = IGNORE
            self.items.append((torch.from_numpy(ids), torch.from_numpy(labels)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], True, PAD)
    labels = torch.nn.utils.rnn.pad_sequence([r[1] for r in rows], True, IGNORE)
    lengths = torch.tensor([len(r[0]) for r in rows])
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def build_model(cfg):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=cfg.vocab, n_positions=cfg.max_len, n_embd=cfg.width, n_layer=cfg.layers,
        n_head=cfg.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=END, eos_token_id=END, use_cache=False))


def loss_on_answers(model, batch):
    hidden = model.transformer(input_ids=batch["input_ids"],
                               attention_mask=batch["attention_mask"]).last_hidden_state
    target = batch["labels"][:, 1:]
    keep = target != IGNORE
    return F.cross_entropy(model.lm_head(hidden[:, :-1][keep]), target[keep])


def parameter_groups(model):
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]


def main():
    set_seed(CFG.seed)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(QADataset(CFG), batch_size=CFG.batch, shuffle=True, drop_last=True,
                        collate_fn=collate)
    model = build_model(CFG)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=CFG.lr, fused=True)
    lr_schedule = get_cosine_schedule_with_warmup(optimizer, 10, CFG.steps)
    model, optimizer, loader, lr_schedule = accelerator.prepare(model, optimizer, loader, lr_schedule)

    model.train()
    loss_sum = torch.zeros(())
    step = 0
    t0 = time.perf_counter()
    while step < CFG.steps:
        for batch in loader:
            loss = loss_on_answers(model, batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            lr_schedule.step()
            optimizer.zero_grad()
            loss_sum += loss.detach()
            step += 1
            if step % 20 == 0:
                accelerator.print(f"step {step} answer loss {loss_sum.item() / 20:.4f} "
                                  f"lr {lr_schedule.get_last_lr()[0]:.2e}")
                loss_sum.zero_()
            if step == CFG.steps:
                break
    took = time.perf_counter() - t0
    print(f"loop_s={took:.3f} steps={step}")


if __name__ == "__main__":
    main()
