"""ProdLDA topic model (logistic-normal prior, product of experts) as a Lightning module."""
import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

VOCAB = 6000
TOPICS = 40
DOCS = 6400
VALID_DOCS = 512
BATCH = 256
HIDDEN = 256
EPOCHS = 9


def synthetic_corpus(n_docs, seed):
    """Word counts drawn from an LDA with sparse topics; uint8 is enough for counts of short texts."""
    rng = np.random.default_rng(seed)
    shape = np.random.default_rng(99)
    base = 1.0 / np.arange(5, VOCAB + 5)
    topics = np.stack([shape.permutation(base) for _ in range(TOPICS)])
    topics = 0.9 * topics / topics.sum(1, keepdims=True) + 0.1 * base / base.sum()
    cdf = topics.cumsum(1)
    counts = np.zeros((n_docs, VOCAB), dtype=np.uint8)
    for d in range(n_docs):
        theta = rng.dirichlet(np.full(TOPICS, 0.1))
        z = rng.multinomial(rng.integers(40, 120), theta)
        for k in np.flatnonzero(z):
            words = np.searchsorted(cdf[k], rng.random(z[k]) * cdf[k, -1])
            np.add.at(counts[d], np.minimum(words, VOCAB - 1), 1)
    return torch.from_numpy(counts)


class Corpus(Dataset):
    """Indexed with a list of document numbers: one batch at once."""

    def __init__(self, counts):
        self.counts = counts

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, picks):
        return self.counts[torch.as_tensor(picks)].float()


def loader(counts, shuffle):
    corpus = Corpus(counts)
    order = RandomSampler(corpus) if shuffle else SequentialSampler(corpus)
    return DataLoader(corpus, sampler=BatchSampler(order, BATCH, drop_last=shuffle), batch_size=None)


class ProdLDA(L.LightningModule):
    def __init__(self, lr=2e-3, alpha=0.1, dropout=0.2):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            nn.Linear(VOCAB, HIDDEN), nn.Softplus(), nn.Linear(HIDDEN, HIDDEN), nn.Softplus(), nn.Dropout(dropout)
        )
        self.mu, self.mu_norm = nn.Linear(HIDDEN, TOPICS), nn.BatchNorm1d(TOPICS, affine=False)
        self.log_var, self.var_norm = nn.Linear(HIDDEN, TOPICS), nn.BatchNorm1d(TOPICS, affine=False)
        self.drop = nn.Dropout(dropout)
        self.beta = nn.Parameter(torch.empty(TOPICS, VOCAB))
        nn.init.xavier_uniform_(self.beta)
        self.word_norm = nn.BatchNorm1d(VOCAB, affine=False)
        var = (1 - 2 / TOPICS) / alpha + 1 / (TOPICS * alpha)
        self.register_buffer("prior_var", torch.tensor(var))

    def forward(self, counts):
        h = self.encoder(counts)
        mu, log_var = self.mu_norm(self.mu(h)), self.var_norm(self.log_var(h))
        z = mu + torch.randn_like(mu) * (0.5 * log_var).exp() if self.training else mu
        theta = self.drop(z.softmax(-1))
        return self.word_norm(theta @ self.beta).log_softmax(-1), mu, log_var

    def elbo(self, counts):
        log_words, mu, log_var = self(counts)
        rec = -(counts * log_words).sum(-1)
        kl = 0.5 * (
            (log_var.exp() + mu.square()) / self.prior_var - 1 + self.prior_var.log() - log_var
        ).sum(-1)
        return (rec + kl).mean()

    def training_step(self, counts, batch_idx):
        return self.elbo(counts)

    def validation_step(self, counts, batch_idx):
        self.log("valid_elbo", self.elbo(counts), batch_size=len(counts))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr, betas=(0.99, 0.999))


class Stopwatch(L.Callback):
    def on_train_start(self, trainer, module):
        self.begin = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        print(f"epoch {trainer.current_epoch} elbo {trainer.callback_metrics['valid_elbo'].item():.2f}")

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.begin


def main():
    torch.set_num_threads(1)
    L.seed_everything(31, verbose=False)
    train, valid = synthetic_corpus(DOCS, 1), synthetic_corpus(VALID_DOCS, 2)
    watch = Stopwatch()
    callbacks = [watch]
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(ProdLDA(), loader(train, True), loader(valid, False))
    print("loop_s=%.3f steps=%d" % (watch.seconds, trainer.global_step))


if __name__ == "__main__":
    main()
