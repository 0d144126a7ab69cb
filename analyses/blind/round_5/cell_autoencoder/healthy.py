"""Poisson autoencoder for single-cell expression counts.

Cells are drawn from a handful of synthetic cell types; the model compresses the
counts of the variable genes into a small latent space that is later clustered.
"""
import argparse
import logging
import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

log = logging.getLogger("cells")


@dataclass
class CountData:
    counts: sp.spmatrix
    cell_type: np.ndarray
    depth: np.ndarray

    @property
    def n_cells(self):
        return self.counts.shape[0]

    @property
    def n_genes(self):
        return self.counts.shape[1]


def simulate(n_cells, n_genes, n_types, seed):
    rng = np.random.default_rng(seed)
    base = rng.gamma(0.35, 0.35, size=n_genes)
    programs = np.exp(rng.normal(0, 0.8, size=(n_types, n_genes)))
    cell_type = rng.integers(0, n_types, size=n_cells)
    depth = rng.lognormal(0.0, 0.3, size=n_cells)
    parts = []
    for start in range(0, n_cells, 4000):
        stop = min(start + 4000, n_cells)
        rate = base * programs[cell_type[start:stop]] * depth[start:stop, None] * 0.6
        parts.append(sp.csr_matrix(rng.poisson(rate).astype(np.float32)))
    return sp.vstack(parts), cell_type


def gene_statistics(counts):
    n = counts.shape[0]
    mean = np.asarray(counts.sum(axis=0)).ravel() / n
    second = np.asarray(counts.multiply(counts).sum(axis=0)).ravel() / n
    return mean, second - mean ** 2


def select_genes(counts, n_top, min_cells=20):
    """Keep the genes with the largest variance to mean ratio."""
    by_gene = counts.tocsc()
    expressed = np.diff(by_gene.indptr)
    mean, var = gene_statistics(by_gene)
    score = np.where(expressed >= min_cells, var / np.maximum(mean, 1e-6), -1.0)
    keep = np.sort(np.argsort(score)[::-1][:n_top])
    return by_gene[:, keep].tocsr()


def prepare(args):
    counts, cell_type = simulate(args.cells, args.genes, args.types, args.seed)
    counts = select_genes(counts, args.top_genes)
    depth = np.asarray(counts.sum(axis=1)).ravel().astype(np.float32)
    log.info("matrix %s, %.1f%% non-zero", counts.shape,
             100 * counts.nnz / np.prod(counts.shape))
    return CountData(counts, cell_type, depth / depth.mean())


class BatchSampler:
    def __init__(self, data, index, batch_size, seed):
        self.data = data
        self.index = index
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def gather(self, rows):
        x = torch.from_numpy(self.data.counts[rows].toarray())
        depth = torch.from_numpy(self.data.depth[rows])
        return x, depth

    def __iter__(self):
        while True:
            order = self.rng.permutation(self.index)
            for i in range(0, len(order) - self.batch_size + 1, self.batch_size):
                yield self.gather(order[i:i + self.batch_size])


class CellAutoencoder(nn.Module):
    def __init__(self, n_genes, hidden, latent):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(n_genes, hidden), nn.LayerNorm(hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, latent))
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, n_genes))

    def forward(self, x, depth):
        z = self.encoder(torch.log1p(x / depth[:, None]))
        return z, self.decoder(z) + depth.log()[:, None]


def poisson_loss(log_rate, x):
    return nn.functional.poisson_nll_loss(log_rate, x, log_input=True)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    losses = [poisson_loss(model(x, d)[1], x).item() for x, d in batches]
    model.train()
    return float(np.mean(losses))


def train(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    data = prepare(args)
    order = np.random.default_rng(args.seed + 1).permutation(data.n_cells)
    held_out, kept = order[:1024], order[1024:]
    sampler = BatchSampler(data, kept, args.batch_size, args.seed + 2)
    val_batches = [sampler.gather(held_out[i:i + 256]) for i in range(0, 1024, 256)]
    model = CellAutoencoder(data.n_genes, args.hidden, args.latent)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    batches = iter(sampler)

    def step():
        x, depth = next(batches)
        _, log_rate = model(x, depth)
        loss = poisson_loss(log_rate, x)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    begin = time.perf_counter()
    for i in range(1, args.steps + 1):
        loss = step()
        if i % 100 == 0:
            log.info("step %d train %.4f val %.4f", i, loss.item(), evaluate(model, val_batches))
    return time.perf_counter() - begin


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cells", type=int, default=12000)
    p.add_argument("--genes", type=int, default=2400)
    p.add_argument("--top-genes", type=int, default=2000)
    p.add_argument("--types", type=int, default=12)
    p.add_argument("--hidden", type=int, default=384)
    p.add_argument("--latent", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    seconds = train(args)
    print("loop_s=%.3f steps=%d" % (seconds, args.steps))


if __name__ == "__main__":
    main()
