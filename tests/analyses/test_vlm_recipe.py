"""The recipe study: what is run, that it goes on where it stopped, and what its page says of drawn runs."""

import xml.etree.ElementTree as ET

import pytest

from analyses.fsdp_scaling import tables
from analyses.vlm_recipe import page, run, runs, traces
from analyses.vlm_recipe.cells import LAYERS, Machine, cells, kept
from analyses.vlm_recipe.results import results
from profkit.compare.ladder.study import climb_table
from profkit.model.documents.ladder import OrderSource
from profkit.verdict.on_cpu import BEYOND
from tests.conftest import ROOT

PLAIN, HALF = Machine(device="cpu", has_bf16=False), Machine(device="cuda", has_bf16=True)
STEP_NS = 100_000_000


@pytest.mark.parametrize("machine", [PLAIN, HALF])
@pytest.mark.parametrize("is_quick", [True, False])
def test_every_cell_is_one_of_its_own_and_stands_on_another(machine, is_quick):
    chosen = cells(machine, is_quick=is_quick)
    slugs = [cell.slug for cell in chosen]
    assert len(set(slugs)) == len(slugs)
    assert {cell.against for cell in chosen} <= {*slugs, ""}
    assert len({tuple(sorted(cell.flags.items())) for cell in chosen}) == len(chosen)
    assert not any(set(cell.expected) & set(cell.excluded) for cell in chosen)


@pytest.mark.torch
def test_the_workload_knows_the_flags_of_every_cell():
    options = pytest.importorskip("workloads.recipe.options", reason="needs torch")
    for machine in (PLAIN, HALF):
        for cell in cells(machine, is_quick=False):
            _, _, layers, doses = options.read_options(cell.arguments)
            assert doses.stage == cell.stage
            assert layers.batch == int(cell.flags.get("--batch", 2))
            assert (layers.precision, layers.fusion, layers.cache) == tuple(
                cell.flags.get(name, usual)
                for name, usual in (("--precision", "fp32"), ("--fusion", "none"), ("--cached-features", "off"))
            )
            are_on = (layers.is_bucketed, layers.is_packed, layers.is_checkpointed, doses.is_pinned)
            names = ("--bucketing", "--packing", "--checkpointing", "--pinned")
            assert are_on == tuple(
                cell.flags.get(name, usual) == "on"
                for name, usual in zip(names, ("off", "off", "on", "on"), strict=True)
            )


def test_the_ladder_adds_a_layer_at_a_time_in_the_published_order():
    for machine in (PLAIN, HALF):
        rungs = [cell for cell in cells(machine, is_quick=True) if cell.kind == "ladder"]
        assert [cell.slug for cell in rungs] == ["s2/base", *(f"s2/{layer.name}" for layer in LAYERS)]
        by_slug = {cell.slug: cell for cell in rungs}
        for cell, layer in zip(rungs[1:], LAYERS, strict=True):
            assert {**by_slug[cell.against].flags, **layer.flags} == dict(cell.flags)
        assert ("--precision" in rungs[-1].flags) == machine.has_bf16
        assert rungs[-1].flags["--bucketing"] == "off"  # packing takes its place
        assert rungs[-1].layers == "+".join(layer.name for layer in kept(machine))


def test_the_layers_of_a_cell_are_its_flags():
    by_name = {layer.name: layer.flags for layer in LAYERS}
    for machine in (PLAIN, HALF):
        for cell in (one for one in cells(machine, is_quick=False) if one.kind != "trap"):
            flags = dict(machine.flags) | {"--stage": str(cell.stage)}
            for name in filter(None, cell.layers.replace("none", "").split("+")):
                flags |= by_name[name]
            assert flags == dict(cell.flags)


@pytest.mark.parametrize("machine", [PLAIN, HALF])
def test_profkit_orders_the_rungs_of_the_labs_tables_by_itself(machine, tmp_path):
    chosen = cells(machine, is_quick=False)
    for block in range(2):
        for place, cell in enumerate(reversed(chosen)):  # as runs come: in no order
            sizes = {
                "vocabulary": cell.flags.get("--vocabulary", 16384),
                "tower_depth": cell.flags.get("--tower-depth", 6),
            }
            row = {"stage": cell.stage, "batch": cell.flags.get("--batch", 2), "block": block, "order": place, **sizes}
            row |= {"real_tokens_per_sec": 1000.0 - place + block, "pad_fraction": 0.0}
            runs.append(tmp_path / "runs.csv", {**dict.fromkeys(runs.COLUMNS, 1.0), **row, **runs.named(cell)})
    run.write_ladder(tmp_path, chosen)
    wanted = ["base", *(layer.name for layer in kept(machine))]
    report = climb_table(tmp_path / "ladder.csv")
    assert (report.order_source, report.are_layers_told, report.warnings) == (OrderSource.LAYERS, True, ())
    assert [ladder.name for ladder in report.ladders] == ["stage 1", "stage 2"]
    for ladder in report.ladders:
        assert [rung.cell.rung for rung in ladder.rungs] == wanted
        assert [rung.added for rung in ladder.rungs] == [(), *((name,) for name in wanted[1:])]
        assert [rung.confounds for rung in ladder.rungs] == [()] * len(wanted)
    whole = climb_table(tmp_path / "runs.csv")
    assert (whole.order_source, whole.are_layers_told) == (OrderSource.LAYERS, True)
    # The second may be another layer alone, where the third holds both.
    assert [name for (name,) in whole.order][2 : len(wanted)] == wanted[2:]


def test_a_run_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    chosen = cells(PLAIN, is_quick=True)[:3]
    made = []

    def run_cell(cell):
        made.append(cell.slug)
        return {**dict.fromkeys(runs.COLUMNS, 1.0), "slug": cell.slug, "real_tokens_per_sec": 100.0}

    monkeypatch.setattr(runs, "run_cell", run_cell)
    monkeypatch.setattr(runs, "tell", lambda _: None)
    path = tmp_path / "a" / "runs.csv"
    runs.measure(chosen[:2], path, n_blocks=2)
    assert sorted(made) == sorted(2 * [cell.slug for cell in chosen[:2]])
    runs.measure(chosen, path, n_blocks=2)
    assert len(made) == 6
    assert [(row["slug"], row["block"]) for row in runs.read_rows(path)].count((chosen[2].slug, "1")) == 1


def drawn(speeds, *, n_blocks=4):
    """Runs of cells that make so many tokens per second, a little more in each block."""
    return [
        {
            **dict.fromkeys(runs.COLUMNS, "0"),
            "slug": slug,
            "block": str(block),
            "real_tokens_per_sec": str(speed * (1 + 0.01 * block)),
            "peak_mem_gb": str(memory),
        }
        for slug, (speed, memory) in speeds.items()
        for block in range(n_blocks)
    ]


def told(*findings, tower=0.0, **saves):
    named = {**dict.fromkeys(findings, 0), **{name.replace("__", "."): ns for name, ns in saves.items()}}
    return {
        "bottleneck": "kernel-bound",
        "headline": "h",
        "where": "train.py:3 in step(): loss.backward()",
        "step_ns": STEP_NS,
        "findings": {name: {"title": name, "saves_ns": ns} for name, ns in named.items()},
        "tower_share": tower,
    }


SPEEDS = {
    "s2/base": (100, 1.0),
    "s2/precision": (50, 1.0),
    "s2/batch": (150, 2.0),
    "s2/bucketing": (180, 1.8),
    "s2/fusion": (200, 1.2),
    "s2/packing": (210, 1.2),
    "s2/no-checkpointing": (300, 1.4),
    "s2/cached-features": (330, 1.4),
    "s2/only-bucketing": (110, 1.0),
    "s2/only-fusion": (120, 0.8),
    "s2/only-packing": (110, 1.0),
    "s2/only-no-checkpointing": (130, 1.3),
    "s2/only-cached-features": (110, 1.0),
    "s2/trap-precision": (70, 1.0),
    "s1/few": (500, 0.5),
    "s1/few-chunked": (400, 0.5),
    "s1/few-shards": (300, 0.5),
}
TOLD = {
    "s2/base": told("padding.waste", "work.recompute", host__launch_bound=40_000_000),
    "s2/batch": told("work.recompute", padding__waste=10_000_000),
    "s2/no-checkpointing": told(tower=0.2),
    "s2/trap-precision": told("precision.fallback"),
    "s1/few": told("precision.fallback"),
    "s1/few-chunked": {**told(), "readings": {"compare.products": "matrix products are called 1.6x as often"}},
    "s1/few-shards": {**told("input.starved"), "bottleneck": "data-bound"},
}


@pytest.fixture(scope="module")
def made():
    about = {"has_bf16": False, "gpu": None, "cores": 2}
    return {**about, **results(cells(PLAIN, is_quick=True), drawn(SPEEDS), TOLD)}


def test_a_gain_stands_beside_what_the_trace_before_allowed(made):
    by_slug = {cell["slug"]: cell for cell in made["cells"]}
    batch, bucketing = by_slug["s2/batch"], by_slug["s2/bucketing"]
    assert 1 + batch["change"]["effect"] == pytest.approx(1.5)
    assert batch["predicted_factor"] == pytest.approx(1 / 0.6)
    assert batch["is_within"]
    assert bucketing["predicted_factor"] == pytest.approx(1 / 0.9)
    assert not bucketing["is_within"]  # 1.2x where 1.11x was allowed
    assert by_slug["s2/cached-features"]["predicted_factor"] == pytest.approx(1.25)
    assert by_slug["s2/precision"]["predicted_factor"] == 1
    assert by_slug["s2/cached-features"]["of_base"] == pytest.approx(3.3)


def test_single_gains_are_multiplied_and_what_is_beaten_in_both_is_not_on_the_front(made):
    (one,) = made["interaction"]
    assert one["product"] == pytest.approx(1.5 * 1.2 * 1.1 * 1.3 * 1.1)
    assert one["measured"] == pytest.approx(3.3)
    assert made["front"]["2"] == ["s2/packing", "s2/cached-features", "s2/only-fusion"]


def test_what_a_trace_says_against_the_truth_is_counted(made):
    said = {cell["slug"]: cell["said"] for cell in made["cells"] if cell["said"]}
    assert said["s2/trap-precision"]["against_truth"] == ""
    assert said["s1/few"]["against_truth"] == "found wrongly: precision.fallback"
    assert said["s1/few-chunked"]["against_truth"] == ""
    assert "reads: matrix products are called 1.6x as often" in page.text({"cpu": made})
    assert "1 say something else" in page.noise(made)
    assert "s2/bucketing" in page.noise(made)


def test_the_page_has_a_line_for_every_rung_and_the_three_surprises(made):
    text = page.text({"cpu": made})
    assert "weights in bf16 (not kept)" in text
    assert text.count("(not kept)") == 1
    assert "1.67x (`host.launch_bound`)" in text
    assert "0.70x" in text
    assert [f"{number}. **" in text for number in (1, 2, 3)] == [True] * 3
    for chart in page.charts(made).values():
        assert ET.fromstring(chart).tag.endswith("svg")  # noqa: S314 - our own


def surprises(told_of, speeds=SPEEDS):
    made = results(cells(PLAIN, is_quick=False), drawn(speeds), told_of)
    return dict(zip("123", filter(None, page.surprises(made)), strict=True))


def test_a_surprise_says_what_was_measured_and_judged_here():
    said = surprises(TOLD)
    assert said["1"].endswith("Its trace names `precision.fallback`.")
    assert "1.11x of the tokens at a large vocabulary (stage 2) and 0.80x at 512 words (stage 1)" in " ".join(
        said["2"].split()
    )
    assert said["2"].endswith("`profkit compare` of both reads: matrix products are called 1.6x as often.")
    assert said["3"].endswith("The verdict on its trace is data-bound.")
    without = surprises({})
    assert without["1"].endswith("Its trace was not taken.")
    assert without["2"].endswith("`profkit compare` of both was not made.")
    assert without["3"].endswith("Its trace was not taken.")
    silent = surprises({"s2/trap-precision": told(), "s1/few-chunked": {**told(), "readings": {}}})
    assert silent["1"].endswith("Its trace does not name `precision.fallback`.")
    assert silent["2"].endswith("`profkit compare` of both reads nothing of it.")


def test_the_loss_of_few_words_stands_beside_that_of_many_in_its_own_stage():
    said = surprises(TOLD, {**SPEEDS, "s1/bucketing": (100, 1.0), "s1/fusion": (125, 1.0)})
    assert "1.25x of the tokens at a large vocabulary (stage 1)" in " ".join(said["2"].split())


def test_the_page_counts_the_runs_of_each_cell_and_names_the_factors_of_a_product(made):
    assert page.device_title("cpu", made) == "Here: 2 cores, 4 runs per cell"
    rows = [row for row in drawn(SPEEDS) if (row["slug"], row["block"]) != ("s2/base", "3")]
    fewer = {**made, **results(cells(PLAIN, is_quick=True), rows, TOLD)}
    assert page.device_title("cpu", fewer) == "Here: 2 cores, 3 to 4 runs per cell"
    text = page.text({"cpu": made})
    assert "(batch 1.50x, fusion 1.20x, packing 1.10x, no-checkpointing 1.30x, cached-features 1.10x)" in text


def test_a_twin_whose_trace_is_gone_is_captured_again(tmp_path, monkeypatch):
    few = [cell for cell in cells(PLAIN, is_quick=True) if cell.slug in ("s1/few", "s1/few-chunked")]
    captured = []

    def capture(cell, folder):
        captured.append(cell.slug)
        folder.mkdir(parents=True)

    monkeypatch.setattr(traces, "_captured", capture)
    monkeypatch.setattr(traces, "_triaged", lambda _: told())
    monkeypatch.setattr(traces, "_compared", lambda before, after: {"compare.products": f"{before.name} {after.name}"})
    monkeypatch.setattr(traces, "tell", lambda _: None)
    path = tmp_path / "told.json"
    traces.judge_all(few[:1], path, folder=tmp_path / "first")
    traces.judge_all(few, path, folder=tmp_path / "second")
    assert captured == ["s1/few", "s1/few-chunked", "s1/few"]
    assert traces.read_told(path)["s1/few-chunked"]["readings"] == {"compare.products": "few few-chunked"}


def test_a_folder_without_runs_is_one_line(tmp_path):
    (tmp_path / "machine.json").write_text('{"has_bf16": false, "gpu": null, "cores": 2}')
    with pytest.raises(SystemExit, match="no runs to read"):
        run.study(tmp_path, "cpu", is_quick=True, n_blocks=0)


def test_a_trap_that_changes_two_things_at_once_says_both():
    titles = {
        machine.device: next(cell.title for cell in cells(machine, is_quick=True) if cell.slug == "s1/few-shards")
        for machine in (PLAIN, HALF)
    }
    assert ["unpinned" in title for title in titles.values()] == [False, True]


def test_a_trap_that_two_traces_tell_is_looked_for_in_both():
    (chunked,) = (cell for cell in cells(PLAIN, is_quick=True) if cell.slug == "s1/few-chunked")
    assert traces.wrong(chunked, told()) == "not found: compare.products"


@pytest.mark.parametrize(("kind", "most_ns", "beyond"), [("gpu", None, 1), ("cpu", 3, 1 + BEYOND)])
def test_what_is_kept_of_a_report_is_the_most_that_it_says(kind, most_ns, beyond):
    report = {
        "verdict": {"bottleneck": "data-bound", "headline": "h", "where": None, "step_ns": 5},
        "findings": [{"id": "input.starved", "title": "t", "recoverable_ns": 2, "most_recoverable_ns": most_ns}],
        "ranks": [
            {
                "devices": [{"kind": kind}],
                "sections": [
                    {"analyzer": "steps", "tables": []},
                    {
                        "analyzer": "code",
                        "tables": [{"headers": ["module", "of window"], "rows": [["  Recipe.tower", 0.2]]}],
                    },
                ],
            }
        ],
    }
    kept = traces.said_of(report)
    assert (kept["where"], kept["findings"]["input.starved"]["saves_ns"]) == ("", most_ns or 2)
    assert kept["tower_share"] == pytest.approx(0.2 * beyond)


def test_the_readme_has_room_for_the_results():
    text = (ROOT / "analyses" / "vlm_recipe" / "README.md").read_text(encoding="utf-8")
    assert text.index(tables.BEGIN) < text.index(tables.END)
