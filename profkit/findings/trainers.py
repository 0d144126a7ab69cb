"""Programs whose loop a library runs (transformers' Trainer, Lightning): what it calls beside training, what it is told.

`setting` says what to change in the words of that library, which its users know better than torch's.
"""

from __future__ import annotations

import re
from typing import Final

from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

CALLBACK: Final = FindingKind(
    id="host.callback",
    title="callbacks take part of each step",
    bottleneck=Bottleneck.OVERHEAD,
    late_phase="host",
    late_word="callbacks",
    supersedes=(Supersedes("host.launch_bound", Way.BEHIND, 0.2),),
    meaning="The loop is a library's (transformers' Trainer, Lightning), and it calls callbacks and loggers in each step: functions of yours, or its own. Training waits for them, and does not need them: what they compute (norms, metrics, numbers for a log) can come every few steps.",
    measured="Time of the thread that trains, in the window, on a GPU while that is idle, inside functions with the names of such calls (on_step_end, on_train_batch_end, on_log, log, save_checkpoint) that a package's loop calls; of the innermost one. The loop is a call of a package that was running when the recording began and goes on for most of it.",
    thresholds={
        "window": Threshold(0.05, "fires at {} of the window", "chosen: the severity medium"),
    },
    notes=("from a fifth of the overhead of the host on, they are named before it (chosen)",),
    lookalikes=(
        "a callback that trains as well (a second model, a weight average): it is part of the job",
        "evaluation and saving in a recorded step: they come every few steps",
    ),
    proof="Leave the callback out, or let it return at once in all but every 50th step: the step becomes shorter by about the time shown.",
    fixes=(
        "let the callback return at once in all but every 50th step",
        "keep numbers on the device, and read them (.item(), float()) only when they are logged",
        "TrainingArguments(logging_steps=50); Trainer(log_every_n_steps=50) in Lightning",
    ),
)

_LOG: Final = re.compile(r"\b_?(?:on_)?log(?:_\w+)?\(\)")
_SAVE: Final = re.compile(r"\bmodel_checkpoint\.py|\b_?save_checkpoint\(\)")
_TRANSFORMERS: Final = {
    "save": 'TrainingArguments(save_steps=...) with a larger number, or save_strategy="epoch"',
    "callback": "let {it} return at once unless state.global_step % 50 == 0, or leave it out of Trainer(callbacks=[...])",
    "log": "TrainingArguments(logging_steps=50)",
    "input.starved": "TrainingArguments(dataloader_num_workers=4, dataloader_persistent_workers=True)",
    "input.restarted": "TrainingArguments(dataloader_persistent_workers=True)",
    "evaluation": "TrainingArguments(eval_steps=...) with a larger number",
    "outputs": 'the evaluation gathers all that the model returns: let it return logits alone (no output_hidden_states=True or output_attentions=True in its config, else trainer.train(ignore_keys_for_eval=["hidden_states", "attentions"])); Trainer(preprocess_logits_for_metrics=...) with a function that keeps what compute_metrics reads (logits.argmax(-1)); TrainingArguments(prediction_loss_only=True) where the loss is enough',
    "host.launch_bound": "TrainingArguments(per_device_train_batch_size=...) with more, and torch_compile=True",
    "host.optimizer_loop": 'TrainingArguments(optim="adamw_torch_fused")',
    "precision.no_tf32": "TrainingArguments(tf32=True)",
    "h2d.exposed": "TrainingArguments(dataloader_pin_memory=True)",
    "comm.unused_parameters": "TrainingArguments(ddp_find_unused_parameters=False)",
    "comm.buckets": "TrainingArguments(ddp_bucket_cap_mb=...)",
    "comm.accumulation": "TrainingArguments(gradient_accumulation_steps=...) in place of a loop of your own",
}
_LIGHTNING: Final = {
    "save": "ModelCheckpoint(every_n_train_steps=...) with a larger number, or every_n_epochs=1 in its place",
    "callback": "let {it} return at once unless batch_idx % 50 == 0, or leave it out of Trainer(callbacks=[...])",
    "log": "Trainer(log_every_n_steps=50), and self.log(..., on_step=False, on_epoch=True)",
    "input.starved": "in train_dataloader(): DataLoader(..., num_workers=4, persistent_workers=True)",
    "input.restarted": "in train_dataloader(): DataLoader(..., persistent_workers=True)",
    "evaluation": "Trainer(check_val_every_n_epoch=...) with a larger number, or limit_val_batches=...",
    "outputs": "torchmetrics, updated in validation_step, in place of lists of outputs",
    "built": "Trainer(reload_dataloaders_every_n_epochs=0), and the data set in setup()",
    "host.launch_bound": "a larger batch_size in train_dataloader(), and torch.compile(model) before trainer.fit()",
    "host.optimizer_loop": "in configure_optimizers(): fused=True",
    "precision.no_tf32": 'torch.set_float32_matmul_precision("high") before trainer.fit()',
    "h2d.exposed": "in train_dataloader(): DataLoader(..., pin_memory=True)",
    "comm.unused_parameters": 'Trainer(strategy="ddp") in place of "ddp_find_unused_parameters_true"',
    "comm.buckets": "Trainer(strategy=DDPStrategy(bucket_cap_mb=...))",
    "comm.accumulation": "Trainer(accumulate_grad_batches=...), or self.trainer.model.no_sync() in a loop of your own",
}
_BY_PACKAGE: Final = {
    "transformers": _TRANSFORMERS,
    "trl": _TRANSFORMERS,
    "sentence_transformers": _TRANSFORMERS,
    "lightning": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
}


def setting(package: str, what: str) -> str:
    """What to set in a library whose loop runs, by a finding's id; "" where that is not known."""
    return _BY_PACKAGE.get(package, {}).get(what, "")


def callback_fix(package: str, function: str) -> str:
    """What to do about a function that a library calls beside training."""
    what = "save" if _SAVE.search(function) else "log" if _LOG.search(function) else "callback"
    said = setting(package, what) or CALLBACK.fixes[0]
    return said.replace("{it}", function.partition(" (")[0])
