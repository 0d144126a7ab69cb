"""The fixed text of docs/accuracy.md: what is measured and how, what it cannot tell, how to add to it."""

from __future__ import annotations

from typing import Final

from analyses.accuracy.truth import LARGE, SMALL

HEAD: Final = """\
# How often profkit is right

This page is written by `python -m analyses.accuracy.page` from the committed results. Do not edit it.
"""

CELLS: Final = """\
## Programs of our own

What follows is regression: these cells share their authors with the rules that judge them, so their figures say that
nothing broke, not how often profkit is right about a program that nobody here has seen.
"""

_LARGE: Final = f"{100 * LARGE:.0f} %"
_SMALL: Final = f"{100 * SMALL:.0f} %"

HOW: Final = f"""\
## How it is measured

A **cell** is a small training program with a dose of one problem (its pathology), or without any. Three kinds of
cells:

- *faults*: something that costs time, in doses that aim to cost about 5, 20 and 45 % of the step;
- *decoys*: something that looks bad in a trace and costs next to nothing, as a slow loader behind enough workers;
- *healthy*: the program alone, or with jitter.

The **label** of a cell is a measurement, never the name of its fault. The program alternates, without a profiler,
between blocks of steps with the pathology and blocks without it, in one process before the recording and in another
after it: a machine whose clock changes meanwhile has a wide interval. (A slow link cannot be turned off by a program:
there fresh runs take turns.) The gain of removal is the share of the step that is saved, with a 95 % interval over
pairs of blocks. Pairs of one process have its luck in common, so intervals are somewhat too narrow.

The **verdict** comes from `profkit run` on the same program with the pathology on, as a user would run it. The tool
sees its own recording only, and the JSON report is all that is scored.

What is **right** follows from the measured gain:

| removing it saves | right | wrong |
|---|---|---|
| {_LARGE} of the step or more | the class of the pathology (`data-bound`, ...) | all else |
| {_SMALL} to {_LARGE} | that, or what is right of the program without it | all else |
| less than {_SMALL} | what is right of the program without it | any other bottleneck: a false alarm |

*Inconclusive* is neither right nor wrong and has a column of its own. Intervals of shares are Wilson's, of 95 %. A
label is uncertain where the interval of its gain reaches over one of the two limits. *Sharp labels* are the others,
without the cells where either answer is right: mostly large gains, and none at all.
"""

CEILINGS: Final = (
    f"Of the cells whose removal saves {_SMALL} or more. A ceiling is the most that a fix can save, as the report says"
    " it. A gap is the ceiling minus the measured gain. Points above the dashed line gained more than was said."
)
BOUNDS: Final = """\
On a CPU a removal saves more than the time of its cause, which also took caches, cores and clock from the rest of the
step. The report says both: the time of the cause (*about*), and that time with an addition (*at most*), a share of it
or of the rest of the step, whichever is shorter. The addition is the least with which nine of ten ceilings are not
below the gain itself; `python -m analyses.accuracy.bounds` chooses it again. *Each family by the others* is the score
that counts; *each pathology by the others* is harder.
"""
SLOPES: Final = (
    "`profkit probe` delays a place at random: 1 means that a millisecond saved there shortens the step by one, 0"
    " that the place is hidden."
)

CHOSEN: Final = """\
Three shares decide what a verdict on a CPU names: the overhead that ordinary programs have (what exceeds it competes),
the share from which a cause is the bottleneck, and the share of compute from which the work is. Each recording was
analysed once and judged under every setting of a grid; a setting is worth its right verdicts less its false alarms.
*Each family by the others* is the score that counts: no family has a say in the three limits that it is judged by
(the rules themselves were written by people who had seen all families).
`python -m analyses.accuracy.limits` chooses them again.
"""

CONFIDENCE: Final = """\
How often answers of about one confidence are right. Confidences here are as made, before the curve that they go through
in reports on a CPU. Cells where either answer is right are left out.
"""

LIMITS: Final = """\
## What this cannot tell

- The programs are small and run on CPUs. Nothing here measures verdicts on a GPU.
- Each program has one problem at a time. Two at once are not tested.
- Of the two ranks `comm-bound` counts as right in every cell without another problem: what leaving out all of it
  saves stands in the cells of `gradient_sync`. It is the easiest family.
- Families, pathologies and the rules of profkit come from the same hands. A problem that we did not think of is in
  neither. The list of cells is open for that reason.
- `kernel-bound` is also what these programs are without a problem, so a tool that always says it is right on every
  healthy cell. Look at the rows of the other truths, and at how often the finding that names the cause is there.
- What is added to the time of a cause was measured on one machine of two cores. Elsewhere caches and clocks are others.
"""

PEERS: Final = """\
## The other tools

- **before**: profkit with limits as on a GPU and the time of a cause as its ceiling. It is no peer, and shows what the
  numbers were worth; rules that the benchmark taught (one stretch of each step, operators that wait for their own
  threads) stay in it.
- **constant** says `kernel-bound` of everything. Half of the programs are that without a problem, and four pathologies
  with it: what a tool is worth shows where something else than the work costs 10 %.
- **naive**: the row with the most self time in a profile is the problem, as the table of `key_averages()` suggests.
  A DataLoader's range means data-bound, a collective comm-bound, a copy to or from a device copy-bound; a range
  that is no operator has Python as its self time and means overhead-bound; any other operator means kernel-bound.
  Its ceiling is the row's share. It has no confidence and never abstains.
- **hta** (HolisticTraceAnalysis, as traceinsight 0.6.1): measures device rows alone. On a CPU trace its temporal
  breakdown, idle times and stragglers end in an exception and its overlap is empty, so it has no answer in any cell
  without a device. Where there is one, the largest part of its temporal breakdown is taken as its verdict.
- **traceml** (traceml-ai 0.5.0 from PyPI) reads no traces: it watches a run of its own, with the steps of the program
  marked for it, and needs no GPU. It is asked by `python -m analyses.accuracy.tools.traceml`, a minute for a cell. Its
  diagnoses are taken as input-bound: data-bound, residual-heavy: overhead-bound, compute-bound: kernel-bound,
  H2D-bound: copy-bound, balanced: healthy; each of its stragglers is straggler-bound. Its ceiling is the share that
  it names.
"""

ADD: Final = """\
## Run it, add a cell, score another tool

```sh
make accuracy                          # what is not measured yet; a cell that is done is not run again
python -m analyses.accuracy.score      # every table of this page, and the failures of every tool
python -m analyses.accuracy.page       # this page, from the results
make accuracy ARGS=--quick             # a fixed sample, under ten minutes, on your machine
python -m analyses.accuracy.score out/accuracy/quick.jsonl
```

**A cell.** Write a class for the pathology or for the program beside the others and put it into their registry: the
runner then makes its cells. Nothing in profkit may know of it. A verdict that is wrong is a result: send it.

**A tool that reads traces.** Add a function to TOOLS of `analyses/accuracy/peers.py`: it gets the traces of a cell
and returns a verdict. **Any other tool.** Write one line per cell, and set it beside the others:

```sh
$ cat answers.jsonl
{"key": "mlp/loader_serial/large/0", "said": {"bottleneck": "data-bound", "confidence": 0.8, "gain": 0.4}}
$ python -m analyses.accuracy.score --answers mytool=answers.jsonl
```

`said` has the fields of `Said` in `analyses/accuracy/cell.py`; all but `bottleneck` can be left out.
"""
