import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass
class Config:
    steps: int = 50
    batch: int = 12
    prompt: int = 8
    response: int = 20
    vocab: int = 600
    beta: float = 0.05
    lr: float = 3e-4


class Policy:
    def __init__(self, cfg):
        self.cfg = cfg
        mc = GPT2Config(vocab_size=cfg.vocab, n_positions=64, n_embd=128, n_layer=2, n_head=4, bos_token_id=0,
                        eos_token_id=None, pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        use_cache=True)
        self.model = GPT2LMHeadModel(mc)
        self.ref = GPT2LMHeadModel(mc)
        self.ref.load_state_dict(self.model.state_dict())
        self.ref.eval().requires_grad_(False)

    @torch.no_grad()
    def rollout(self, prompts):
        self.model.eval()
        out = self.model.generate(
            input_ids=prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0,
            min_new_tokens=self.cfg.response, max_new_tokens=self.cfg.response, pad_token_id=0,
            use_cache=True,
        )
        self.model.train()
        return out

    def logprobs(self, model, tokens):
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        logp = F.log_softmax(logits[:, self.cfg.prompt - 1 :], -1)
        return logp.gather(-1, tokens[:, self.cfg.prompt :].unsqueeze(-1)).squeeze(-1)


class RewardModel:
    """Likes the first fifty words of the vocabulary, dislikes repetition."""

    def __call__(self, responses):
        liked = (responses < 50).float().mean(1)
        repeats = (responses[:, 1:] == responses[:, :-1]).float().mean(1)
        return liked - repeats


class Learner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.policy = Policy(cfg)
        self.reward = RewardModel()
        self.opt = torch.optim.AdamW(self.policy.model.parameters(), lr=cfg.lr)
        self.baseline = 0.0
        self.gen = torch.Generator().manual_seed(9)

    def step(self):
        cfg = self.cfg
        prompts = torch.randint(1, cfg.vocab, (cfg.batch, cfg.prompt), generator=self.gen)
        tokens = self.policy.rollout(prompts)
        with torch.no_grad():
            ref = self.policy.logprobs(self.policy.ref, tokens)
        logp = self.policy.logprobs(self.policy.model, tokens)
        kl = (logp.detach() - ref).sum(1)
        score = self.reward(tokens[:, cfg.prompt :]) - cfg.beta * kl
        advantage = score - self.baseline
        self.baseline = 0.9 * self.baseline + 0.1 * score.mean().item()
        loss = -(advantage.unsqueeze(1) * logp).mean()
        self.opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
        self.opt.step()
        return score.mean().item(), kl.mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cfg = Config()
    learner = Learner(cfg)
    learner.step()
    t0 = time.perf_counter()
    for it in range(cfg.steps):
        score, kl = learner.step()
        if it % 10 == 0:
            print(f"{it:3d} score {score:.3f} kl {kl:.3f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={cfg.steps}")


if __name__ == "__main__":
    main()
