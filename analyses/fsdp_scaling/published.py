"""The published study again, from its raw runs: SigLIP-2 and Qwen2.5 under FSDP on 2, 4 and 8 V100."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from analyses.lab import numbers
from profkit.compare.scaling.study import scale
from profkit.compare.stats.judge import judge
from profkit.compare.tables.result_tables import matched, read_table
from profkit.render.json import scaling as scaling_json
from profkit.render.terminal import scaling

FOLDER: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "seeds" / "fsdp_study"
CAPACITY_BYTES: Final = 16e9  # V100 16 GB, as the study says


def reanalysed() -> tuple[dict[str, Any], str] | None:
    """Gives what the published runs say, as plain values and as text; None where they do not lie beside the project.

    The values hold means, spreads and intervals, not the runs: those are not this project's to publish.
    """
    if not FOLDER.is_dir():
        return None
    runs, prefetched = (read_table(FOLDER / name) for name in ("results1.csv", "8gpuprefetch.csv"))
    report = scale([runs], capacity_bytes=CAPACITY_BYTES)
    document = scaling_json.scaling_to_dict(report)
    for series in document["series"]:
        for point in series["points"]:
            low_and_high = min(point["runs"]), max(point["runs"])
            point["lowest"], point["highest"] = low_and_high
            del point["runs"]
    ((name, baseline, candidate),) = matched(runs, prefetched)
    change = judge(baseline, candidate)
    text = "\n".join(
        [
            scaling.render(report, width=100, color=False),
            f"   Forward prefetch, {name}",
            f"   {change.answer.upper()}: {change.sentence}",
            f"   {change.method_note}" if change.method_note else "",
        ]
    )
    return {"scaling": document, "prefetch": {"configuration": name, **numbers(change)}}, text + "\n"
