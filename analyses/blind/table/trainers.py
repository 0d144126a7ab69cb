"""Training by frameworks, each with one fault of `table.toml`, or without it.

python trainers.py --fault hf_trainer [--healthy]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

def gpt(dim: int = 96, layers: int = 4) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256, n_positions=128, n_embd=dim, n_layer=layers, n_head=4, bos_token_id=0, eos_token_id=1
        )
    )

def hf_trainer(healthy: bool) -> int:
    from transformers import Trainer, TrainingArguments

    ids = torch.randint(2, 256, (2048, 32))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    told = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=60,
        per_device_train_batch_size=8,
        optim="adamw_torch_fused" if healthy else "adamw_torch",
        eval_strategy="steps",
        eval_steps=20,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(gpt(dim=64, layers=8), told, train_dataset=rows, eval_dataset=rows[:64])
    return int(trainer.train().global_step)

def lightning(healthy: bool) -> int:
    import lightning as L
    from lightning.pytorch.utilities import grad_norm

    class Classifier(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 192), *(nn.Linear(192, 192) for _ in range(20)), nn.Linear(192, 10))

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = F.cross_entropy(self.net(x), y)
            self.log("loss", loss)
            return loss

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            if not healthy:
                self.log_dict(grad_norm(self.net, norm_type=2))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)

    x = torch.randn(4096, 64)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :10].argmax(1)), batch_size=256)
    trainer = L.Trainer(
        max_steps=80, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Classifier(), loader)
    return trainer.global_step

def generation(healthy: bool) -> int:
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for _ in range(30):
        prompt = torch.randint(2, 256, (4, 64))
        model.eval()
        out = model.generate(prompt, max_new_tokens=12, min_new_tokens=12, do_sample=True, use_cache=healthy)
        model.train()
        reward = (out[:, 64:] % 2 == 0).float().mean(1)
        logits = model(out[:, :-1]).logits[:, 63:]
        log_p = -F.cross_entropy(logits.flatten(0, 1), out[:, 64:].flatten(), reduction="none").view(4, -1)
        loss = -((reward - reward.mean())[:, None] * log_p).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return 30

class Experts(nn.Module):
    """A deep net whose second head some tasks leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(96, 96), nn.ReLU()) for _ in range(60)))
        self.head = nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))

def rank_of_two(rank: int, folder: str, healthy: bool) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(Experts(), find_unused_parameters=not healthy)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=True)
    start = time.perf_counter()
    for _ in range(150):
        x = torch.randn(32, 96)
        loss = F.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loop_s={time.perf_counter() - start:.3f} steps=150", flush=True)
    torch.distributed.destroy_process_group()

def ddp_unused(healthy: bool) -> int:
    torch.multiprocessing.spawn(rank_of_two, (tempfile.mkdtemp(), healthy), nprocs=2)
    return 0

FAULTS = {one.__name__: one for one in (hf_trainer, lightning, generation, ddp_unused)}

def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--healthy", action="store_true")
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    start = time.perf_counter()
    steps = FAULTS[asked.fault](asked.healthy)
    if steps:
        print(f"loop_s={time.perf_counter() - start:.3f} steps={steps}")

if __name__ == "__main__":
    main()
