"""What the experiments say: of a place that `profkit probe` delays, and of a change that `profkit try` makes."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold

PROBE_SLOPE: Final = FindingKind(
    id="probe.slope",
    title="how much of a delay at one place shows in the step",
    meaning="1: the place is on the critical path, and each millisecond saved there shortens the step by one. 0: it is hidden, and there is nothing to gain however large it looks in a trace. Between: the path alternates, or a delay uses up a slack first.",
    measured="In one run without a profiler, delays of two known sizes are put at one place of a step, by a schedule drawn at random. The slope is the change of the step time per unit of delay, summed over the steps in which it may show (least squares with a slow drift; 95 % interval by shuffled schedules or by Newey and West's error, whichever is wider). Slope x time, summed over all places, is the step: the report prints that sum as its check.",
    thresholds={
        "critical": Threshold(0.8, "critical from a slope of {}", "chosen", ""),
        "hidden": Threshold(0.2, "hidden up to a slope of {}", "chosen", ""),
        "middle": Threshold(
            0.5, "and the whole interval on the same side of {}", "chosen: half-way between the two answers", ""
        ),
        "beyond": Threshold(
            1.0, "inconclusive if the interval reaches {} below 0 or above 1", "chosen: no delay shows twice", ""
        ),
        "settled": Threshold(
            0.4, "a half-width of {} is taken for settled where more steps are counted", "chosen, below half of 1", ""
        ),
        "total": Threshold(0.2, "the sum may differ from 1 by {}", "chosen, as a slope's own reading", ""),
    },
    lookalikes=(
        "a delay sleeps and takes no core from others: a slope says nothing of contention",
        "an interval that holds 0 and 1 is no answer; the report says how many more steps would give one",
        "two paths that are equally long: delays show on both, but saving on one alone gives nothing (the sum is above 1)",
    ),
    proof="Probe again with another --seed: the slopes must lie within the intervals of both runs.",
    fixes=("work on the place whose slope x time is largest; leave hidden ones as they are",),
)

PROBE_OVERTURNED: Final = FindingKind(
    id="probe.overturned",
    title="the place that a trace blames is hidden",
    meaning="A trace shows where time goes, a probe what shortens the step. If the place of the verdict has a slope near 0, saving time there would not shorten the step, so the verdict is withdrawn. profkit triage TRACE --probe probe.json says so; elsewhere it makes the ceiling slope x cost.",
    measured="The slope of the place that the finding is about: input for the DataLoader, the host's parts together for host overhead, comm for collectives, copy for copies to the device, the rank for a late rank.",
    thresholds={
        "other_job": Threshold(
            2, "not applied if the steps of probe and trace differ {}", "chosen: load alone makes less", "x"
        ),
    },
    lookalikes=("the profiler itself lengthened what the trace blames; the probe runs without one",),
    proof="profkit probe with another --seed, then the same triage.",
    fixes=("look at the places that the probe shows to be on the critical path",),
)

PREDICTION: Final = FindingKind(
    id="trial.prediction",
    title="what a change gives, predicted by the verdict and measured in runs",
    meaning="The verdict says what a finding is worth at most. A trial makes the change that removes its cause, in the job itself, and measures the step with it and without. Held: the gain lies inside the predicted interval. Missed: its whole interval lies outside, and the report says which part of the step moved instead. Open: the runs cannot tell.",
    measured="Each block runs every change once and the unchanged job once, in an order drawn at random, each second block backwards. A run is unprofiled, starts anew and stops after its timed steps; the first steps are left out. Gain is the share of the step that is saved, by Student's t on the logarithms of ratios within blocks; all intervals of a table together hold with 95 % (Bonferroni), early ends included (Haybittle and Peto).",
    thresholds={
        "close": Threshold(
            0.8,
            "removing a whole cause is predicted to give at least {} of its ceiling",
            "97 % of 547 ceilings of simulated jobs were within 20 % of what removal gave (make simulated)",
        ),
        "receiving": Threshold(
            0.05,
            "receiving batches from workers may take {} of the step",
            "chosen: copies of batches through shared memory",
        ),
        "margin": Threshold(
            0.02, "a gain within {} of the predicted interval is inside", "the margin of every comparison", "points"
        ),
        "wide": Threshold(
            0.5, "a prediction that leaves more than {} of the step open is none", "chosen: half of all gains fit it"
        ),
        "stays": Threshold(
            0.05,
            "an ablation bounds nothing where the part that it leaves out had {} of the step and keeps more than half",
            "chosen: the severity medium",
        ),
        "overrun": Threshold(
            1.5, "a session ends before it takes {} times as long as announced", "promised by the command", "x"
        ),
        "worth": Threshold(0.02, "findings of less than {} of the step are not tried", "the same margin"),
    },
    lookalikes=(
        "a ceiling is a bound: a change that removes half of a cause gives less, and the prediction still holds",
        "a machine that changes its clock between runs widens every interval; the report says how much runs of the unchanged job vary",
        "a change may speed up what the finding is not about (torch.compile also fuses): then the gain is above the prediction, and it is missed",
    ),
    proof="profkit bench runs the script with the change written into it against the script as it is.",
    fixes=("keep the change whose gain is shown, by the line under 'keep it'",),
)
