"""What a failed check takes from the confidence: one rung of a ladder each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.analyzers.quality.checks import confidence_cap
from profkit.analyzers.quality.measured import Quality, measure
from profkit.timeline import Facts
from tests.analyzers.test_findings import healthy


@pytest.fixture(scope="module")
def sound() -> Quality:
    return measure(Facts.of(healthy().trace()))


def test_a_sound_capture_takes_nothing(sound: Quality) -> None:
    assert confidence_cap(sound) == 1.0


@pytest.mark.parametrize(
    ("failed", "cap"),
    [
        ({"lost_launch_fraction": 1.0}, 0.2),
        ({"n_removed": 1}, 0.4),
        ({"n_giant": 1}, 0.4),
        ({"n_damage": 1}, 0.4),
        ({"n_rows": 0, "n_steps_marked": 0}, 0.2),
        ({"n_cpu_ops": 0}, 0.2),
        ({"whole_graph_fraction": 1.0}, 0.4),
        ({"early_fraction": 1.0}, 0.5),
        ({"unlinked_fraction": 1.0}, 0.6),
        ({"n_steps_marked": 1}, 0.6),
        ({"overlapped_fraction": 1.0}, 0.7),
        ({"overhead_fraction": 1.0}, 0.7),
        ({"startup_fraction": 1.0}, 0.4),
        ({"perturbation": 0.4}, 0.7),
        ({"perturbation": 0.5}, 1 / 1.5),
        ({"perturbation": 0.6}, 0.6),
        ({"perturbation": 9.0}, 0.1),
    ],
)
def test_a_failed_check_caps_the_confidence(sound: Quality, failed: dict[str, object], cap: float) -> None:
    assert confidence_cap(replace(sound, **failed)) == cap
