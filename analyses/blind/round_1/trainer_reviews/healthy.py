"""Fine-tune a little BERT on synthetic product reviews with the HF Trainer."""
import csv
import os
import random
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers, processors
from transformers import (BertConfig, BertForSequenceClassification, DataCollatorWithPadding,
                          PreTrainedTokenizerFast, Trainer, TrainerCallback, TrainingArguments)

GOOD = "great lovely sturdy quick perfect nice happy reliable".split()
POOR = "broken awful weak late useless noisy sad flimsy".split()
FILL = "the a this that box item parcel was is came with for my house garden it and then very quite".split()


def write_reviews(path, n, seed):
    rng = random.Random(seed)
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        for _ in range(n):
            y = rng.randrange(2)
            words = rng.choices(FILL, k=rng.randint(6, 30))
            for _ in range(3):
                words.insert(rng.randrange(len(words)), rng.choice(GOOD if y else POOR))
            w.writerow([" ".join(words), y])


def read_reviews(path):
    with open(path, newline="") as f:
        return [(t, int(y)) for t, y in csv.reader(f)]


def make_tokenizer(texts):
    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")


class ReviewDataset(torch.utils.data.Dataset):
    def __init__(self, rows, tokenizer, max_length):
        texts = [t for t, _ in rows]
        self.enc = tokenizer(texts, truncation=True, max_length=max_length)
        self.labels = [y for _, y in rows]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        item = {k: v[i] for k, v in self.enc.items()}
        item["labels"] = self.labels[i]
        return item


class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 3:
            self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **kw):
        self.took = time.perf_counter() - self.start
        self.steps = state.global_step - 3


def accuracy(p):
    return {"accuracy": float((np.argmax(p.predictions, -1) == p.label_ids).mean())}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        train_csv, test_csv = os.path.join(tmp, "train.csv"), os.path.join(tmp, "test.csv")
        write_reviews(train_csv, 640, 1)
        write_reviews(test_csv, 96, 2)
        train, test = read_reviews(train_csv), read_reviews(test_csv)
        tokenizer = make_tokenizer(t for t, _ in train)
        model = BertForSequenceClassification(BertConfig(
            vocab_size=len(tokenizer), hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=256, max_position_embeddings=128))
        args = TrainingArguments(
            output_dir=os.path.join(tmp, "out"), per_device_train_batch_size=16, per_device_eval_batch_size=32,
            num_train_epochs=2, learning_rate=5e-4, eval_strategy="epoch", save_strategy="no", logging_steps=20,
            report_to=[], disable_tqdm=True, use_cpu=True, seed=0)
        clock = Clock()
        trainer = Trainer(model=model, args=args, train_dataset=ReviewDataset(train, tokenizer, 128),
                          eval_dataset=ReviewDataset(test, tokenizer, 128),
                          data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=accuracy, callbacks=[clock])
        trainer.train()
    print(f"loop_s={clock.took:.3f} steps={clock.steps}")


if __name__ == "__main__":
    main()
