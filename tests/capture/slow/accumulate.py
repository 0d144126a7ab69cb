"""Gradients of four micro-batches for each step, with a collate function that pads in Python."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, n):
        generator = torch.Generator().manual_seed(0)
        self.rows = [torch.randint(1, 100, (20,), generator=generator).tolist() for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    longest = max(map(len, rows))
    table = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        for j, token in enumerate(row):
            table[i, j] = token  # slow
    return table


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(100, 32), nn.Linear(32, 100)

    def forward(self, tokens):
        return self.out(self.embed(tokens))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    loader = DataLoader(Sentences(args.steps * args.accumulate * 8), batch_size=8, collate_fn=collate)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number, tokens in enumerate(loader, 1):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        (loss / args.accumulate).backward()
        if number % args.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
