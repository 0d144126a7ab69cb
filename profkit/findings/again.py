"""Findings on backward passes that go through the same graph again, or copy the same gradient again."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import TO_TRY, FindingKind, Supersedes, Threshold, Way
from profkit.findings.patterns import NAMES, WORTH_WORK

_NAMES: Final = tuple(Supersedes(one, Way.BEHIND, NAMES) for one in ("kernel.unfused", "host.launch_bound"))

BACKWARD_AGAIN: Final = FindingKind(
    id="work.backward_again",
    title="several backward passes of a step go through the same layers",
    is_about_work=True,
    supersedes=_NAMES,
    meaning="With retain_graph=True a backward pass can go through the same graph again. Where several losses share layers and each calls backward(), the shared layers run backward once for each; their gradients are added up all the same. Where torch.autograd.grad is called for each input of one output, all of the network runs backward for each.",
    measured="Backward nodes with the sequence number and the thread of one that ran before: a node of one kept graph. Of passes that add to the gradients of the same parameters (AccumulateGrad), and of calls of torch.autograd.grad that begin at the same output with ones: all runs but the first, and what a later pass runs of both graphs that such calls made. On a GPU, the kernels that they launch and what it would idle less without their launches; on a CPU, their time.",
    thresholds={"window": WORTH_WORK},
    notes=(
        "not where an optimizer steps, clears or looks at all gradients between the passes, where gradients are cleared by other means, nor where a pass takes the gradient of another's result",
        "the nodes of each loss alone run once, and are not counted",
    ),
    lookalikes=("a hook that reads each loss's gradients", "losses one by one on purpose, to hold one head's graph"),
    proof="Add the losses and call backward() once, or name all inputs in one call of torch.autograd.grad: the gradients stay the same but for rounding, and the step is shorter by about the time shown.",
    fixes=(
        "add the losses and call backward once, (loss_a + loss_b).backward(): the gradients are the same, and the shared layers run backward once",
        "name all inputs in one call: u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), create_graph=True); of one input, slice its gradient",
    ),
)

ROWS_APART: Final = FindingKind(
    id="work.rows_apart",
    title="the gradient of each element of an output is taken in a call of its own",
    leads_from=TO_TRY,
    is_about_work=True,
    is_estimated=True,
    supersedes=_NAMES,
    meaning="A loop calls torch.autograd.grad for each element of an output: a Jacobian row by row, a divergence. Each call goes backward through the same small operators. Taken as one batch, each operator runs once, on all rows.",
    measured="Calls of torch.autograd.grad in a step that begin with a slice or an index of the same tensor, and go on through the same nodes, by sequence numbers. All but the first, each from where the element is picked to its last node, with what a later pass runs of the graphs that they made, where nodes are short, by the mean of their medians; half of it stays, with create_graph=True 0.7 of it.",
    thresholds={
        "window": WORTH_WORK,
        "rows": Threshold(8, "with {} calls or more", "measured: of 4 rows a batch takes 0.7 to 1.0 of the time", ""),
        "each": Threshold(
            20_000,
            "where nodes take {} or less",
            "measured: at 45 to 75 us a batch of 8 rows takes 0.8 to 0.9 of the time, at 200 us more",
            "ns",
        ),
        "with_graph": Threshold(
            10_000,
            "with create_graph=True of {} or less",
            "measured: at 30 to 40 us a batch of 16 or 32 rows takes 1.1 to 1.6 times the time",
            "ns",
        ),
    },
    lookalikes=("rows of which each depends on the gradient before", "an operator that vmap cannot batch"),
    proof="Take all rows in one call, with is_grads_batched=True: the gradients stay the same, and the step is shorter.",
    fixes=(
        "try all rows in one call: torch.autograd.grad(out, x, rows, is_grads_batched=True), rows being one-hot vectors with the batch behind; or torch.func.vmap(torch.func.jacrev(f))",
    ),
)

TASK_GRADIENTS: Final = FindingKind(
    id="work.task_gradients",
    title="the gradient of each loss is taken through all layers that the losses share",
    leads_from=TO_TRY,
    is_about_work=True,
    meaning="A scheme that weighs or combines losses by their gradients (GradNorm, MGDA) takes each loss's gradient by itself, through all shared layers. Often their size at the last shared layer is all that it reads, and that takes no pass through the layers below. Some need all of it (PCGrad), so it is a question, and no saving is promised.",
    measured="Calls of torch.autograd.grad between two steps of the optimizers, each with nodes of its own loss first and then through nodes that another call goes through as well, by sequence numbers: the shared nodes. Not of gradients whose own gradient a later pass takes, or that take one.",
    thresholds={"window": WORTH_WORK},
    lookalikes=("a scheme that needs each loss's gradient of all shared parameters",),
    proof="Take these gradients with respect to the last shared layer alone: if the weights of the losses stay the same, that is enough, and the step is shorter by up to the time shown.",
    fixes=(
        "if their size or direction at the last shared layer is enough, take them there alone: torch.autograd.grad(loss, shared.weight, retain_graph=True), or with respect to its output; if all are read, add them up in place of one more backward()",
    ),
)

SLICE_WRITES: Final = FindingKind(
    id="work.slice_writes",
    title="writes into slices of a tensor each copy its whole gradient",
    is_about_work=True,
    supersedes=_NAMES,
    meaning="A loop writes what it computes into a tensor that was made before it, out[t] = value. Each write is a node of the graph (CopySlices), and in the backward pass each node copies the gradient of the whole tensor to set one slice of it to zero: ten times as many writes copy a hundred times as much. torch.stack of a list hands each value its slice of one gradient.",
    measured="Backward nodes CopySlices of writes (aten::copy_ into a view), by the sequence number of the node inside each: their time, less that of one copy of the whole gradient, as if all writes of a step went into one tensor.",
    thresholds={
        "window": WORTH_WORK,
        "writes": Threshold(
            8, "with {} writes or more in a step", "chosen: few writes set a border, which no list replaces", ""
        ),
    },
    lookalikes=("a few slices of a tensor that was computed as a whole: then torch.cat or torch.where",),
    proof="Collect the values in a list and stack them once: the loss stays the same, and the step is shorter by about the time shown.",
    fixes=(
        "collect the values in a list (out.append(value)) and join them once behind the loop, torch.stack(out, dim) or, of slices with more than one row, torch.cat(out, dim); what reads a slice of it in the loop reads the list",
    ),
)
