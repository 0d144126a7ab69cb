import json
import math
import os
import random
import tempfile
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
BETA = 0.1


def write_preferences(path, n):
    rng = random.Random(12)
    nouns = ["".join(rng.choices("abcdefgh", k=5)) for _ in range(120)]
    with open(path, "w") as f:
        for _ in range(n):
            topic = rng.choice(nouns)
            prompt = f"what is {topic} and why is {rng.choice(nouns)} like {topic} ?"
            good = "it is " + " ".join(rng.choices(nouns, k=rng.randint(8, 14))) + f" {topic} ."
            bad = "no " + " ".join(rng.choices(nouns, k=rng.randint(8, 14))) + " ."
            f.write(json.dumps({"prompt": prompt, "chosen": good, "rejected": bad}) + "\n")


class Preferences(Dataset):
    def __init__(self, path, tokenizer):
        with open(path) as f:
            rows = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.rows = [tuple(self.encode(r[k]) for k in ("prompt", "chosen", "rejected")) for r in rows]

    def __len__(self):
        return len(self.rows)

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    seqs = [(p, c) for p, c, _ in batch] + [(p, r) for p, _, r in batch]
    width = max(len(p) + len(a) for p, a in seqs)
    ids = torch.zeros(len(seqs), width, dtype=torch.long)
    answer = torch.zeros(len(seqs), width, dtype=torch.bool)
    for k, (p, a) in enumerate(seqs):
        ids[k, : len(p) + len(a)] = torch.tensor(p + a)
        answer[k, len(p) : len(p) + len(a)] = True
    return ids, answer


def sequence_logp(model, ids, answer):
    logits = model(input_ids=ids, attention_mask=(ids > 0).long()).logits[:, :-1]
    logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (logp * answer[:, 1:]).sum(1)


def main():
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "prefs.jsonl")
        write_preferences(path, 480)
        tok = Tokenizer(models.BPE(unk_token="[UNK]"))
        tok.pre_tokenizer = pre_tokenizers.Whitespace()
        with open(path) as f:
            tok.train_from_iterator(f, trainers.BpeTrainer(vocab_size=600, special_tokens=["[PAD]", "[UNK]"], show_progress=False))
        loader = DataLoader(Preferences(path, tok), batch_size=8, shuffle=True, collate_fn=collate)
        config = GPT2Config(vocab_size=tok.get_vocab_size(), n_positions=128, n_embd=192, n_layer=3, n_head=4,
                            bos_token_id=1, eos_token_id=1, use_cache=False)
        policy = GPT2LMHeadModel(config)
        reference = GPT2LMHeadModel(config)
        reference.load_state_dict(policy.state_dict())
        reference.eval().requires_grad_(False)
        opt = torch.optim.RMSprop(policy.parameters(), lr=1e-4)
        ids, answer = next(iter(loader))
        sequence_logp(policy, ids, answer).sum().backward()

        steps = 0
        start = time.perf_counter()
        for epoch in range(1):
            margin_sum = 0.0
            for ids, answer in loader:
                chosen, rejected = sequence_logp(policy, ids, answer).chunk(2)
                with torch.no_grad():
                    ref_chosen, ref_rejected = sequence_logp(reference, ids, answer).chunk(2)
                margin = BETA * ((chosen - ref_chosen) - (rejected - ref_rejected))
                loss = -F.logsigmoid(margin).mean()
                opt.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                opt.step()
                margin_sum += margin.mean().item()
                steps += 1
                if steps % 15 == 0:
                    print(f"step {steps} loss {loss.item():.3f} margin {margin_sum / 15:.3f} ppl {math.exp(min(20, -chosen.mean().item() / 20)):.1f}")
                    margin_sum = 0.0
        seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
