"""A Hugging Face Trainer with gradient accumulation, on a tiny random model; it may evaluate that first."""

import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64,
    n_positions=16,
    n_embd=16,
    n_layer=1,
    n_head=2,
    bos_token_id=0,
    eos_token_id=1,
    loss_type="ForCausalLM",
)
data = [{"input_ids": torch.randint(0, 64, (16,)), "labels": torch.randint(0, 64, (16,))} for _ in range(160)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=30,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1000,
        eval_strategy="epoch" if "evaluates" in sys.argv else "no",
        eval_on_start="evaluates" in sys.argv,
        per_device_eval_batch_size=2,
        seed=0,
    )
    result = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=data, eval_dataset=data).train()
print("loss", result.training_loss.hex())
