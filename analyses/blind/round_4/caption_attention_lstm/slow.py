"""Show, attend and tell on synthetic scenes: CNN encoder, soft attention, LSTM decoder."""
import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2


def make_scenes(n, vocab, max_len, seed):
    """Images are sums of coloured patches; the caption names the patches in reading order."""
    g = torch.Generator().manual_seed(seed)
    images = 0.1 * torch.randn(n, 3, 64, 64, generator=g)
    captions = torch.full((n, max_len), PAD)
    captions[:, 0] = BOS
    lengths = torch.randint(max_len - 2, max_len + 1, (n,), generator=g)
    cells = torch.randint(0, 64, (n, max_len), generator=g)
    colours = torch.rand(n, max_len, 3, generator=g)
    for i in range(n):
        for j in range(1, int(lengths[i]) - 1):
            r, c = divmod(int(cells[i, j]), 8)
            images[i, :, r * 8:r * 8 + 8, c * 8:c * 8 + 8] += colours[i, j, :, None, None]
            hue = int((colours[i, j] * 3).long().clamp(max=2) @ torch.tensor([9, 3, 1]))
            captions[i, j] = 3 + (int(cells[i, j]) * 27 + hue) % (vocab - 3)
        captions[i, int(lengths[i]) - 1] = EOS
    return images, captions


class Encoder(nn.Module):
    def __init__(self, out_dim):
        super().__init__()
        dims = [3, 32, 64, out_dim]
        self.stages = nn.Sequential(*[
            nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            for i, o in zip(dims, dims[1:])])

    def forward(self, images):
        return self.stages(images).flatten(2).transpose(1, 2)  # (B, 64, out_dim)


class Attention(nn.Module):
    def __init__(self, encoder_dim, decoder_dim, attention_dim):
        super().__init__()
        self.encoder_att = nn.Linear(encoder_dim, attention_dim)
        self.decoder_att = nn.Linear(decoder_dim, attention_dim)
        self.full_att = nn.Linear(attention_dim, 1)

    def forward(self, encoder_out, h):
        att1 = self.encoder_att(encoder_out)
        att2 = self.decoder_att(h)
        energy = self.full_att(torch.relu(att1 + att2.unsqueeze(1))).squeeze(2)
        alpha = F.softmax(energy, dim=1)
        context = torch.bmm(alpha.unsqueeze(1), encoder_out).squeeze(1)
        return context, alpha


class Decoder(nn.Module):
    def __init__(self, vocab, encoder_dim, embed_dim=128, decoder_dim=256, attention_dim=128, dropout=0.3):
        super().__init__()
        self.attention = Attention(encoder_dim, decoder_dim, attention_dim)
        self.embedding = nn.Embedding(vocab, embed_dim, padding_idx=PAD)
        self.init_h = nn.Linear(encoder_dim, decoder_dim)
        self.init_c = nn.Linear(encoder_dim, decoder_dim)
        self.f_beta = nn.Linear(decoder_dim, encoder_dim)
        self.cell = nn.LSTMCell(embed_dim + encoder_dim, decoder_dim)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(decoder_dim, vocab)

    def forward(self, encoder_out, captions):
        embeddings = self.embedding(captions)
        mean = encoder_out.mean(dim=1)
        h, c = self.init_h(mean), self.init_c(mean)
        hidden, alphas = [], []
        for t in range(captions.shape[1] - 1):
            context, alpha = self.attention(encoder_out, h)
            gate = torch.sigmoid(self.f_beta(h))
            h, c = self.cell(torch.cat([embeddings[:, t], gate * context], dim=1), (h, c))
            hidden.append(h)
            alphas.append(alpha)
        logits = self.fc(self.dropout(torch.stack(hidden, 1)))
        return logits, torch.stack(alphas, 1)


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=1500)
    parser.add_argument("--caption-len", type=int, default=20)
    parser.add_argument("--encoder-dim", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--alpha-c", type=float, default=1.0, help="doubly stochastic attention weight")
    parser.add_argument("--print-freq", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(123)
    torch.set_num_threads(1)
    images, captions = make_scenes(960, args.vocab, args.caption_len, seed=5)
    encoder, decoder = Encoder(args.encoder_dim), Decoder(args.vocab, args.encoder_dim)
    params = list(encoder.parameters()) + list(decoder.parameters())
    optimizer = torch.optim.Adam(params, lr=4e-4, fused=True)
    losses = AverageMeter()

    def train_batch(idx):
        caps = captions[idx]
        logits, alphas = decoder(encoder(images[idx]), caps)
        target = caps[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
        loss = loss + args.alpha_c * ((1.0 - alphas.sum(dim=1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 5.0)
        optimizer.step()
        return loss.item()

    def batches():
        while True:
            yield from torch.randperm(len(images)).split(args.batch_size)

    stream = batches()
    for _ in range(3):
        train_batch(next(stream))

    began = time.perf_counter()
    for i in range(args.steps):
        idx = next(stream)
        losses.update(train_batch(idx), len(idx))
        if (i + 1) % args.print_freq == 0:
            print(f"[{i + 1}/{args.steps}]\tLoss {losses.avg:.4f}")
            losses = AverageMeter()
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - began, args.steps))


if __name__ == "__main__":
    main()
