import os
import tempfile
import time
import networkx as nx
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


def make_graph(path, n=2400, k=5):
    sizes = [n // k] * k
    g = nx.random_partition_graph(sizes, 0.02, 0.002, seed=4)
    y = np.zeros(n, dtype=np.int64)
    for c, part in enumerate(g.graph["partition"]):
        y[list(part)] = c
    nx.write_edgelist(g, path, data=False)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 96)).astype(np.float32)
    x[np.arange(n), y] += 1.0
    return x, y


def load_edges(path):
    e = np.loadtxt(path, dtype=np.int64)
    e = np.concatenate([e, e[:, ::-1]])
    return torch.from_numpy(e.T.copy())


def propagation(edges, n):
    """Symmetric normalised adjacency with self loops."""
    loops = torch.arange(n)
    idx = torch.cat([edges, torch.stack([loops, loops])], 1)
    a = torch.sparse_coo_tensor(idx, torch.ones(idx.shape[1]), (n, n)).coalesce()
    idx, val = a.indices(), a.values()
    deg = torch.zeros(n).scatter_add_(0, idx[0], val)
    inv = deg.pow(-0.5)
    return torch.sparse_coo_tensor(idx, inv[idx[0]] * val * inv[idx[1]], (n, n)).coalesce().to_sparse_csr()


class GraphConv(nn.Module):
    def __init__(self, fin, fout):
        super().__init__()
        self.lin = nn.Linear(fin, fout)

    def forward(self, x, edges):
        return propagation(edges, x.shape[0]) @ self.lin(x)


class Net(nn.Module):
    def __init__(self, fin, hid, out):
        super().__init__()
        self.c1 = GraphConv(fin, hid)
        self.c2 = GraphConv(hid, hid)
        self.c3 = GraphConv(hid, out)

    def forward(self, x, edges):
        x = F.dropout(F.relu(self.c1(x, edges)), 0.3, self.training)
        x = F.dropout(F.relu(self.c2(x, edges)), 0.3, self.training)
        return self.c3(x, edges)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        p = os.path.join(tmp, "edges.txt")
        x, y = make_graph(p)
        edges = load_edges(p)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    perm = torch.randperm(len(y))
    tr, va = perm[:1200], perm[1200:]
    net = Net(x.shape[1], 64, 5)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=5e-4)
    epochs, best = 180, 0.0

    def train_epoch():
        net.train()
        opt.zero_grad()
        loss = F.cross_entropy(net(x, edges)[tr], y[tr])
        loss.backward()
        opt.step()
        return loss

    for _ in range(3):
        train_epoch()
    t0 = time.perf_counter()
    for epoch in range(epochs):
        loss = train_epoch()
        if epoch % 5 == 4:
            net.eval()
            with torch.no_grad():
                acc = (net(x, edges)[va].argmax(1) == y[va]).float().mean().item()
            best = max(best, acc)
        if epoch % 25 == 24:
            print(f"epoch {epoch + 1:3d} loss {loss.item():.3f} val {acc:.3f} best {best:.3f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={epochs}")


if __name__ == "__main__":
    main()
