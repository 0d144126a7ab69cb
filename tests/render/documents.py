"""Documents of every kind, drawn: what each renderer must be able to print."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from profkit.compare.bench.interleaved import Design
from profkit.compare.kernels import compare_kernels
from profkit.compare.ladder.cells import Asked
from profkit.compare.ladder.study import climb_table
from profkit.compare.scaling.study import scale
from profkit.compare.tables.result_tables import read_table
from profkit.kernels.assess import assess_all
from profkit.model.code import CodePlace, ModuleUse, Phase, PlaceShare
from profkit.model.documents.bench import Drift
from profkit.model.documents.rank_report import TableView
from profkit.model.documents.trial import Losses, Numbers, Outcome, Trial, TrialReport
from profkit.model.documents.where import PlacesOf, Where
from profkit.model.kernel import KernelProfile
from tests.compare.drawn import LOADER, K, N, compared, host, job
from tests.compare.test_bench import found, made_up
from tests.compare.test_scaling import rank_report, scaled, study
from tests.probe.drawn import probed, slope
from tests.render.reports import ALL

EVIL: Final = "kernel\x1b[31m|<b>`x`</b>\n# title"


def _comparison(folder: Path) -> Any:
    return compared(job([K(at=10, us=300, name=EVIL), N(400, 200)]), job([K(at=10, us=200, name=EVIL), N(50, 200)]))


def _kernels(folder: Path) -> Any:
    metrics = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 81.0}
    profile = KernelProfile(
        source="s", number=0, name=EVIL, function=EVIL, grid=(8, 1, 1), block=(64, 1, 1), metrics=metrics
    )
    return assess_all([profile], sources=["s"], warnings=[])


def _compared_kernels(folder: Path) -> Any:
    sides = [
        KernelProfile(
            source=f"{EVIL}.csv", number=0, name=EVIL, function=EVIL, grid=(size, 1, 1), block=(64, 1, 1),
            metrics={"gpu__time_duration.sum": 1000.0 * size, "dram__bytes_read.sum": 10.0 * size},
        )
        for size in (8, 4)
    ]  # fmt: skip
    other = replace(sides[0], name=f"{EVIL}2", function=f"{EVIL}2")
    return compare_kernels([sides[0], other], [sides[1]], sources=([EVIL], [EVIL]), warnings=[EVIL])


def _where(folder: Path) -> Any:
    place = CodePlace(file=f"{EVIL}.py", function=EVIL, line=3, text=EVIL, call=EVIL, module=EVIL, is_generated=True)
    share = PlaceShare(place=place, phase=Phase.BACKWARD, ns=10, share=0.5, count=3, n_modules=2)
    use = ModuleUse(name=EVIL, depth=0, n_modules=2, work_ns=9, forward_ns=5, backward_ns=4, n_rows=3, idle_ns=1)
    subjects = (
        PlacesOf(kind="finding", name="host.sync", title=EVIL, share=0.2, ns=0, places=(share, share)),
        PlacesOf(kind="kernel", name=EVIL, title="", share=0.2, ns=5, places=()),
    )
    table = TableView(title=EVIL, headers=("module", "n"), units=("text", "count"), rows=((f"  {EVIL}", 3),), note=EVIL)
    tree = {"modules": (use,), "phase_ns": {"forward": 4}, "tables": (table,)}
    return Where(source=EVIL, window_ns=100, n_steps=2, subjects=subjects, **tree)


def _other_work(folder: Path) -> Any:
    waits = [host(LOADER, 400, 99, "user_annotation")]
    return compared(job([K(at=10, us=300)]), job([K(at=10, us=300, blocks=640)], ranges=waits))


def _scaling(folder: Path) -> Any:
    return scale([read_table(study(folder))])


def _traced_scaling(folder: Path) -> Any:
    traces = {1: [rank_report(100)], 2: [rank_report(125, comm_exposed=25)] * 2}
    return scaled(folder, "gpus,batch_size,step_ms\n1,8,0.1\n2,8,0.125\n", traces=traces)


def _ladder(folder: Path) -> Any:
    """Two series of evil names with repeats, memory, padding, an interaction and a change with both signs."""
    rows = ["category,model,batch,real_tokens_per_sec,peak_mem_gb,pad_pct"]
    for model, factor in ((EVIL, 1.5), ("b", 0.5)):
        for name, batch, speed, size in (
            ("base", 2, 100, 4), ("fused", 2, 100 * factor, 3), ("packed", 2, 120, 5), (f"{EVIL} x", 4, 200, 6),
            ("pack_fuse", 2, 130 * factor, 5),
        ):  # fmt: skip
            rows += [f'"{name}","{model}",{batch},{speed + noise},{size},{12 / batch}' for noise in (-1, 0, 1)]
    path = folder / "ladder.csv"
    path.write_text("\n".join(rows))
    return climb_table(path, Asked())


def _probe(folder: Path) -> Any:
    slopes = {
        "input": slope(0.0, 0.2),
        "forward": slope(1.0, 0.2),
        "backward": slope(0.5, 0.2),
        "rank3": slope(0.4, 0.7),
    }
    return replace(probed(**slopes), command=EVIL, notes=(EVIL,), step_source=EVIL, host=slope(0.9, 0.1))


def _trial(folder: Path) -> Any:
    made = {"title": EVIL, "numbers": Numbers.NONE, "is_ablation": False, "n_runs": 6, "step_ns": 9_000_000}
    parts = {"input": 6_000_000, "forward": 4_000_000, "backward": 0, "optimizer": 0}
    trials = [
        Trial(
            change=outcome.value,
            outcome=outcome,
            made=EVIL,
            why_not=EVIL,
            keep=EVIL,
            predicted=(0.1, 0.3),
            gain=0.1,
            interval=(0.05, 0.15),
            is_gain=True,
            parts_ns={**parts, "input": 5_000_000},
            baseline_parts_ns=parts,
            losses=Losses(is_same=False, first_step=3, change=0.01),
            **made,
        )
        for outcome in Outcome
    ]
    drift = Drift(fraction=0.03, p_value=0.01, is_seen=True)
    return TrialReport(
        command=EVIL, bottleneck="data-bound", verdict=EVIL, ceiling=2.0, step_source=EVIL, step_ns=10_000_000, cv=0.02,
        n_steps=40, n_settling=10, n_blocks=6, n_planned=6, n_ranks=2, level=0.95, trials=tuple(trials), drift=drift,
        is_repeatable=False, wrote=(EVIL,),
    )  # fmt: skip


def _bench(folder: Path) -> Any:
    return found(made_up(effect=0.05), Design(n_blocks=8))


DOCUMENTS: Final[dict[tuple[str, str], Callable[[Path], Any]]] = {
    **{("triage", name): (lambda folder, report=report: report) for name, report in ALL.items()},
    ("compare", "more overlap"): _comparison,
    ("compare", "other work"): _other_work,
    ("compare_kernels", "another grid"): _compared_kernels,
    ("kernels", "one launch"): _kernels,
    ("where", "a finding and a kernel"): _where,
    ("scaling", "a study"): _scaling,
    ("scaling", "with traces"): _traced_scaling,
    ("ladder", "two series"): _ladder,
    ("bench", "slower"): _bench,
    ("probe", "all readings"): _probe,
    ("trial", "all outcomes"): _trial,
}
"""Kind and name of a document to what makes it in a folder of its own."""
