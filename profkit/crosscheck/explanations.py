"""What `profkit explain handover.*` prints: what each outcome of a second tool means, where its limits come from."""

from __future__ import annotations

from typing import Final

from profkit.model.finding import Explanation

_IDENTITY: Final = (
    "The runs are different runs: nothing is matched by time. Steps pair by their number, else by order. "
    "Kernels are the same by function (no namespaces, templates, arguments), grid and block; the n-th of "
    "these in a step is the n-th in the paired step. "
)
_SHARES: Final = (
    (
        "60 % of the kernel time on both sides must have a partner (80 % where grids are not known): of all "
        "pairs of 54 real traces, different jobs reach 35 % (65 % by name alone), the same job 76 % at least"
    ),
    (
        "a share may differ by what the scatter of steps allows (95 % interval of Welch's t), and by 2"
        " points in any case:"
        " runs differ more than the steps of one run"
    ),
)

_ALL: Final = (
    Explanation(
        id="handover.confirmed",
        title="the second tool sees the same bottleneck",
        meaning="Both tools come to the same verdict on the same kernels. The confidence becomes that of the surer "
        "tool; where the second tool's steps are longer it disturbs the job more, and makes nothing surer. "
        "ncu confirms kernel-bound only, where it profiled half of the kernel time, and says which roof the "
        "kernels are under.",
        measured=_IDENTITY + "Both budgets are taken step by step and compared as shares of the step.",
        thresholds=(
            *_SHARES,
            "steps are longer from 2 % on: run-to-run noise of a quiet machine",
            "half of the compute kernels' time profiled: chosen",
        ),
        lookalikes=(
            (
                "both tools add their own cost to each launch: an overhead-bound verdict of both can be"
                " theirs; steps timed"
                " without a profiler (profkit capture --baseline 10) tell"
            ),
        ),
        proof="the experiment of the confirmed finding: profkit explain with its id prints it",
        fixes=(),
    ),
    Explanation(
        id="handover.overturned",
        title="the second tool contradicts the first, and disturbs the job no more",
        meaning="The cause that the first tool named is no longer dominant in the second one, although its steps are no"
        " longer: the first tool made the gaps it saw. The report speaks from the second tool.",
        measured=_IDENTITY + "The share of the cause in both budgets, and the mean steps.",
        thresholds=(
            *_SHARES,
            (
                "the cause is host overhead or synchronisation, which a profiler's own cost can make; another one"
                " that is gone in the second run says that the runs differ"
            ),
            "it holds less than 15 % of the second tool's step, as for the verdict itself",
            "its steps are at most 2 % longer, or no farther from steps timed without a profiler where these are known",
        ),
        lookalikes=(
            (
                "another machine, another load, other settings in the second run: the kernels are the same, the host "
                "is not"
            ),
        ),
        proof="Time steps without any profiler (profkit capture --baseline 10): the tool whose steps are closer is "
        "right.",
        fixes=("record as few steps as possible with the disturbing tool, without shapes, stacks and memory",),
    ),
    Explanation(
        id="handover.open",
        title="the second tool does not settle it",
        meaning="The second tool is inconclusive, or it contradicts the first while it disturbs the job more, or "
        "shows one step only; or it is ncu, which runs kernels alone and knows nothing of a step that waits. "
        "The report names the capture that would settle it; a contradicted verdict has a low confidence until"
        " then.",
        measured=_IDENTITY + "Verdicts, shares of the step and mean steps of both.",
        thresholds=(*_SHARES, "0.45, the most confidence in a contradicted verdict: chosen, below medium"),
        lookalikes=(),
        proof="the next tool that the hand-over prints",
        fixes=(),
    ),
    Explanation(
        id="handover.answered",
        title="the second tool answers what the first could not",
        meaning="The first tool was inconclusive, the second is not, on the same kernels. The report speaks from the "
        "second.",
        measured=_IDENTITY,
        thresholds=_SHARES,
        lookalikes=(),
        proof="the experiment of the second tool's finding",
        fixes=(),
    ),
    Explanation(
        id="handover.refused",
        title="what was given is not of the same workload, and not merged",
        meaning="Too little of the kernel time has a partner, the devices differ, or one side has no steps: nothing "
        "can be said per step of both. The report is that of the first tool alone.",
        measured=_IDENTITY + "Matched kernel time as a share of each side's.",
        thresholds=_SHARES,
        lookalikes=(
            (
                "another batch size or sequence length: the functions are the same, the grids are not, and the report"
                " says so"
            ),
            "CUDA graphs that nsys recorded as wholes: profkit nsys --also graphs records the kernels in them",
            "kernels chosen anew on each run (cudnn.benchmark, max-autotune): fewer match",
        ),
        proof="profkit nsys -- COMMAND with the command of the trace",
        fixes=(),
    ),
)

EXPLANATIONS: Final = {item.id: item for item in _ALL}
"""By id, which is `handover.` and the status."""
