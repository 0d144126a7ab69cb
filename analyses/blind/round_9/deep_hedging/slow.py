"""Deep hedging: learn a trading policy for a basket call under proportional costs.

Price paths are simulated (correlated, stochastic volatility); the policy rebalances every day
and is trained on the entropic risk of the terminal profit and loss.
"""
import argparse
import math
import time

import torch
from torch import nn


class Market:
    """Heston-like assets with a common factor."""

    def __init__(self, assets, days, gen):
        self.assets, self.days, self.gen = assets, days, gen
        self.dt = 1.0 / 250
        corr = 0.6 * torch.ones(assets, assets) + 0.4 * torch.eye(assets)
        self.chol = torch.linalg.cholesky(corr)

    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(self.days, n, self.assets, generator=self.gen) @ self.chol.T
        w = torch.randn(self.days, n, self.assets, generator=self.gen)
        price = torch.ones(n, self.assets)
        var = torch.full((n, self.assets), 0.04)
        prices, variances = [price], [var]
        for t in range(self.days):
            vol = var.sqrt()
            price = price * torch.exp(-0.5 * var * self.dt + vol * math.sqrt(self.dt) * z[t])
            shock = -0.5 * z[t] + math.sqrt(0.75) * w[t]
            var = (var + 2.0 * (0.04 - var) * self.dt + 0.4 * vol * math.sqrt(self.dt) * shock).clamp(min=1e-4)
            prices.append(price)
            variances.append(var)
        return torch.stack(prices), torch.stack(variances)


class Policy(nn.Module):
    def __init__(self, assets, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3 * assets + 1, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, assets),
        )

    def forward(self, log_price, vol, held, time_left):
        tau = log_price.new_full((log_price.shape[0], 1), time_left)
        return self.net(torch.cat([log_price, vol, held, tau], dim=1))


class Hedger(nn.Module):
    def __init__(self, assets, hidden, strike, cost):
        super().__init__()
        self.policy = Policy(assets, hidden)
        self.strike, self.cost = strike, cost

    def forward(self, prices, variances):
        days = prices.shape[0] - 1
        log_prices, vols = prices.log(), variances.sqrt()
        held = torch.zeros_like(prices[0])
        positions = torch.zeros_like(prices[:-1])
        for t in range(days):
            held = self.policy(log_prices[t], vols[t], held, 1.0 - t / days)
            positions[t] = held
        gains = (positions * (prices[1:] - prices[:-1])).sum(dim=(0, 2))
        trades = torch.diff(positions, dim=0, prepend=torch.zeros_like(positions[:1]))
        costs = self.cost * (trades.abs() * prices[:-1]).sum(dim=(0, 2))
        payoff = (prices[-1].mean(dim=1) - self.strike).clamp(min=0)
        turnover = trades.detach().abs().mean()
        return gains - costs - payoff, turnover


def entropic_risk(pnl, aversion):
    return (torch.logsumexp(-aversion * pnl, dim=0) - math.log(len(pnl))) / aversion


@torch.no_grad()
def evaluate(hedger, market, n, aversion):
    prices, variances = market.sample(n)
    pnl, _ = hedger(prices, variances)
    tail = pnl.sort().values[: n // 20].mean()
    return entropic_risk(pnl, aversion).item(), pnl.std().item(), tail.item()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--assets", type=int, default=8)
    ap.add_argument("--days", type=int, default=80)
    ap.add_argument("--paths", type=int, default=1024)
    ap.add_argument("--hidden", type=int, default=48)
    ap.add_argument("--steps", type=int, default=72)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--strike", type=float, default=1.0)
    ap.add_argument("--cost", type=float, default=5e-4)
    ap.add_argument("--aversion", type=float, default=10.0)
    ap.add_argument("--eval-every", type=int, default=18)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    market = Market(args.assets, args.days, torch.Generator().manual_seed(args.seed))
    hedger = Hedger(args.assets, args.hidden, args.strike, args.cost)
    opt = torch.optim.Adam(hedger.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)

    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        prices, variances = market.sample(args.paths)
        pnl, turnover = hedger(prices, variances)
        loss = entropic_risk(pnl, args.aversion)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(hedger.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % args.eval_every == 0:
            risk, std, tail = evaluate(hedger, market, args.paths, args.aversion)
            print(f"step {step} loss {loss.item():.4f} turnover {turnover.item():.4f} "
                  f"risk {risk:.4f} std {std:.4f} cvar95 {tail:.4f}", flush=True)
    elapsed = time.perf_counter() - begin
    print(f"loop_s={elapsed:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
