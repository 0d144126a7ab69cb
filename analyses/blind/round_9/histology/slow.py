"""Tissue type of histology tiles with a small ViT and the Hugging Face Trainer."""
import os
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()

CLASSES = ["stroma", "tumour", "mucosa", "lymphocytes", "adipose", "debris"]
SIDE = 64
N_TRAIN = 1500
N_EVAL = 384
STEPS = 75
EVAL_EVERY = 10
BATCH = 20


def stain_tiles(n, rng):
    """H&E-like tiles: each class has its own density and size of nuclei and its own fibre texture."""
    yy, xx = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    density = [6, 26, 14, 48, 2, 10]
    radius = [2.0, 3.6, 2.6, 1.8, 1.6, 2.8]
    stripe = [0.16, 0.03, 0.10, 0.02, 0.06, 0.00]
    tiles = np.empty((n, 3, SIDE, SIDE), dtype=np.uint8)
    labels = rng.integers(0, len(CLASSES), n)
    eosin = np.array([0.93, 0.62, 0.78], dtype=np.float32)[:, None, None]
    haema = np.array([0.34, 0.22, 0.55], dtype=np.float32)[:, None, None]
    for i, c in enumerate(labels):
        theta = rng.uniform(0, np.pi)
        fibre = stripe[c] * np.sin(0.9 * (xx * np.cos(theta) + yy * np.sin(theta)))
        img = eosin + fibre
        cover = np.zeros((SIDE, SIDE), dtype=np.float32)
        for _ in range(max(1, int(rng.poisson(density[c])))):
            cy, cx = rng.uniform(0, SIDE, 2)
            r = radius[c] * rng.uniform(0.7, 1.3)
            y0, y1 = max(int(cy - 7), 0), min(int(cy + 8), SIDE)
            x0, x1 = max(int(cx - 7), 0), min(int(cx + 8), SIDE)
            d2 = (yy[y0:y1, x0:x1] - cy) ** 2 + (xx[y0:y1, x0:x1] - cx) ** 2
            cover[y0:y1, x0:x1] = np.maximum(cover[y0:y1, x0:x1], np.exp(-(d2 / (r * r)) ** 2))
        img = img * (1 - cover) + haema * cover
        img = img + rng.normal(0, 0.12, img.shape)
        tiles[i] = np.clip(img * 255, 0, 255)
    return tiles, labels


class Tiles(Dataset):
    def __init__(self, tiles, labels, flip=False, seed=0):
        self.pixels = torch.from_numpy(tiles).float().div_(127.5).sub_(1)
        self.labels = labels
        self.flip = flip
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = self.pixels[i]
        if self.flip:
            k = int(self.rng.integers(0, 4))
            if k:
                x = torch.rot90(x, k, (1, 2))
        return {"pixel_values": x, "labels": int(self.labels[i])}


def build_model():
    config = ViTConfig(
        image_size=SIDE, patch_size=8, num_channels=3,
        hidden_size=128, num_hidden_layers=5, num_attention_heads=4, intermediate_size=256,
        hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(CLASSES)), label2id={c: i for i, c in enumerate(CLASSES)},
        output_hidden_states=True,
    )
    return ViTForImageClassification(config)


def compute_metrics(pred):
    logits = pred.predictions[0] if isinstance(pred.predictions, tuple) else pred.predictions
    guess = logits.argmax(-1)
    truth = pred.label_ids
    recall = [float((guess[truth == c] == c).mean()) for c in np.unique(truth)]
    return {"accuracy": float((guess == truth).mean()), "balanced_accuracy": float(np.mean(recall))}


def main():
    set_seed(8)
    rng = np.random.default_rng(8)
    tiles, labels = stain_tiles(N_TRAIN + N_EVAL, rng)
    train = Tiles(tiles[:N_TRAIN], labels[:N_TRAIN], flip=True)
    held = Tiles(tiles[N_TRAIN:], labels[N_TRAIN:])

    with tempfile.TemporaryDirectory(dir=".") as out:
        args = TrainingArguments(
            output_dir=out,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=16,
            learning_rate=6e-4,
            weight_decay=0.02,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            eval_strategy="steps",
            eval_steps=EVAL_EVERY,
            logging_steps=EVAL_EVERY,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=8,
        )
        trainer = Trainer(
            model=build_model(), args=args, train_dataset=train, eval_dataset=held,
            compute_metrics=compute_metrics,
        )
        begin = time.perf_counter()
        trainer.train()
        took = time.perf_counter() - begin
    print(f"loop_s={took:.3f} steps={trainer.state.global_step}")


if __name__ == "__main__":
    main()
