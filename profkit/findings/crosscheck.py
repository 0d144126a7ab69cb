"""What comes of a second tool beside the first."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold
from profkit.model.finding import SEVERITY_FROM, Severity

_IDENTITY: Final = (
    "The runs are different runs: nothing is matched by time. Steps pair by their number, else by order. "
    "Kernels are the same by function (no namespaces, templates, arguments), grid and block; the n-th of "
    "these in a step is the n-th in the paired step. "
)
_MATCHED_SOURCE: Final = "chosen; of all pairs of 54 real traces, different jobs reach 35 % (65 % by name alone), the same job 76 % at least, which had cudnn choose other kernels on each run"
_SHARES: Final = {
    "matched": Threshold(0.6, "{} of the kernel time on both sides must have a partner", _MATCHED_SOURCE),
    "named": Threshold(0.8, "{} of it where grids are not known and names alone are compared", _MATCHED_SOURCE),
    "floor": Threshold(
        0.02,
        "a share may differ by the variation of steps (95 % interval of Welch's t), and by {} in any case",
        "runs differ more than the steps of one run",
        "points",
    ),
}
_SAME_STEP: Final = Threshold(0.02, "steps are longer from {} on", "run-to-run noise of a quiet machine")

CONFIRMED: Final = FindingKind(
    id="handover.confirmed",
    title="the second tool sees the same bottleneck",
    meaning="Both tools give the same verdict on the same kernels. The higher confidence of the two holds. If the second tool's steps are longer, it disturbs the job more, and the confidence stays. ncu can confirm only kernel-bound, if it profiled half of the kernel time, and it shows which roof limits the kernels.",
    measured=_IDENTITY + "Both budgets are taken step by step and compared as shares of the step.",
    thresholds={
        **_SHARES,
        "same_step": _SAME_STEP,
        "covered": Threshold(0.5, "{} of the time of compute kernels profiled", "chosen"),
    },
    lookalikes=(
        (
            "both tools add their own cost to each launch, which can make both verdicts overhead-bound; steps timed without a profiler (profkit capture --unprofiled-steps 10) show this"
        ),
    ),
    proof="the experiment of the confirmed finding: profkit explain with its id prints it",
    fixes=(),
)

OVERTURNED: Final = FindingKind(
    id="handover.overturned",
    title="the second tool contradicts the first, and disturbs the job no more than it",
    notes=(
        "the cause is host overhead or synchronisation, which a profiler itself can cause; if another cause is gone in the second run, the runs differ",
        "or its steps are no farther from steps timed without a profiler, where these are known",
    ),
    meaning="The cause that the first tool named is no longer dominant in the second one, although its steps are not longer: the first tool itself caused the gaps. The report uses the second tool.",
    measured=_IDENTITY + "The share of the cause in both budgets, and the mean steps.",
    thresholds={
        **_SHARES,
        "dominant": Threshold(
            SEVERITY_FROM[Severity.HIGH],
            "the cause is less than {} of the second tool's step",
            "as for the verdict itself",
        ),
        "same_step": _SAME_STEP,
    },
    lookalikes=(
        ("another machine, another load, other settings in the second run: the kernels are the same, the host is not"),
    ),
    proof="Time steps without any profiler (profkit capture --unprofiled-steps 10): the tool whose steps are closer is right.",
    fixes=("record as few steps as possible with the disturbing tool, without shapes, stacks and memory",),
)

OPEN: Final = FindingKind(
    id="handover.open",
    title="the second tool does not resolve it",
    meaning="The second tool is inconclusive, or it contradicts the first while it disturbs the job more, or "
    "shows one step only; or it is ncu, which runs kernels alone and cannot see a step that waits. The report names the recording that would resolve it; until then, a contradicted verdict has low confidence.",
    measured=_IDENTITY + "Verdicts, shares of the step and mean steps of both.",
    thresholds={
        **_SHARES,
        "doubt": Threshold(0.45, "{}, the most confidence in a contradicted verdict", "chosen, below medium", ""),
    },
    lookalikes=(),
    proof="the next tool that the hand-over prints",
    fixes=(),
)

ANSWERED: Final = FindingKind(
    id="handover.answered",
    title="the second tool answers what the first could not",
    meaning="The first tool was inconclusive, the second is not, on the same kernels. The report uses the second.",
    measured=_IDENTITY,
    thresholds={**_SHARES},
    lookalikes=(),
    proof="the experiment of the second tool's finding",
    fixes=(),
)

REFUSED: Final = FindingKind(
    id="handover.refused",
    title="the recordings are of different workloads, and are not merged",
    meaning="Too little of the kernel time has a partner, the devices differ, or one side has no steps: the two cannot be compared per step. The report uses the first tool only.",
    measured=_IDENTITY + "Matched kernel time as a share of each side's.",
    thresholds={**_SHARES},
    lookalikes=(
        (
            "another batch size or sequence length: the functions are the same but the grids differ, and the report says so"
        ),
        "CUDA graphs that nsys recorded without their kernels: profkit nsys --also graphs records the kernels in them",
        "kernels chosen anew on each run (cudnn.benchmark, max-autotune): fewer match",
    ),
    proof="profkit nsys -- COMMAND with the command of the trace",
    fixes=(),
)
