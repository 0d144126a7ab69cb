"""An IterableDataset shared out among workers, a collate function, padding, gradient accumulation."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        generator = torch.Generator().manual_seed(info.id)
        for _ in range(320 // info.num_workers):
            n = int(torch.randint(4, 20, (1,), generator=generator))
            yield torch.randint(1, 50, (n,), generator=generator)


def collate(lines):
    return pad_sequence(lines, batch_first=True), torch.tensor([len(line) for line in lines])


if __name__ == "__main__":
    torch.manual_seed(0)
    embed, rnn, head = nn.Embedding(50, 16, padding_idx=0), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 50)
    parts = nn.ModuleList([embed, rnn, head])
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(Lines(), batch_size=4, num_workers=2, collate_fn=collate, prefetch_factor=2)
    for index, (lines, lengths) in enumerate(loader):
        out, _ = rnn(embed(lines[:, :-1]))
        loss = nn.functional.cross_entropy(head(out).flatten(0, 1), lines[:, 1:].flatten(), ignore_index=0)
        (loss / 2).backward()
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()
    print(index, lengths.tolist(), loss.item().hex())
