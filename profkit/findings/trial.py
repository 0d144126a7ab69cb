"""What `profkit try` predicts of a change, and when that is held or missed."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Threshold

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
