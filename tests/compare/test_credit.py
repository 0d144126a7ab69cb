"""What a reading counts and what it leaves to others, and changes that are told by where work runs."""

from dataclasses import replace

import pytest

from profkit.model.trace import Trace
from tests.compare.drawn import K, compared, copy, explained, host, job, read
from tests.compare.test_changes import FUSED, GEMM, NNC, batch, gemms, title


def test_generated_kernels_count_with_those_that_they_replaced():
    """20 elementwise kernels of the model and the loop of the optimizer go: each reading has its own."""
    model = [K(at=250 + 10 * place, us=8, name="vectorized_elementwise_mul") for place in range(20)]
    loop = [K(at=600 + 16 * place, us=15, name="vectorized_elementwise_add") for place in range(10)]
    steps = [host("Optimizer.step#SGD.step", 500, 270, "user_annotation")]
    fused = K(at=600, us=30, name=FUSED.replace("Adam", "Sgd"))
    before = job([*gemms(3), *model, *loop], ranges=steps)
    found = read(before, job([*gemms(3), K(at=250, us=60, name=NNC), fused], ranges=steps, step_us=780))
    assert (explained(found["compiled"]), explained(found["optimizer"])) == (-100_000, -120_000)
    assert found["compiled"].evidence[0].statement == (
        "generated kernels 0 ns -> 60.0 us, other elementwise ones 160 us -> 0 ns per step"
    )


def test_a_format_that_is_left_alone_is_no_change_of_it():
    """Products in fp32 went to kernels whose names tell no format; the one in tf32 is as it was."""
    tf32 = K(at=900, us=40, name="ampere_tf32_s1688gemm_128x64")
    fused = [K(at=10 + 80 * place, us=60, name="Conv2dBiasPReLU__input_0") for place in range(6)]
    assert "precision" not in read(job([*gemms(), tf32]), job([*fused, tf32]))


def test_copies_on_a_stream_of_their_own_and_what_they_hide():
    kernels = [K(at=300 + 60 * place, us=50, name=GEMM) for place in range(6)]
    one, other = job([batch("Pinned", 280), *kernels]), job([replace(batch("Pinned", 280), stream=9), *kernels])
    beside = job([replace(batch("Pinned", 280), stream=9, at=310), *kernels], step_us=740)
    found = read(one, beside)["copy_stream"]
    assert found.title == "copies to the device run on a stream of their own: compute hides 240 us of their 280 us"
    assert explained(found) == -240_000
    assert "copies" not in read(one, beside)
    assert title(one, other, "copy_stream").endswith("of their own: compute hides none")
    assert title(beside, one, "copy_stream").startswith("copies to the device no longer run on a stream of their own")
    pageable = [job([replace(batch("Pageable", 280), stream=stream), *kernels]) for stream in (7, 9)]
    assert "pin_memory=True" in read(*pageable)["copy_stream"].fix
    assert "copy_stream" not in read(one, one)


@pytest.mark.parametrize(("n_grown", "factors"), [(1, (1.15,)), (8, (1.2, 3.0))])
def test_grids_of_few_kernels_or_of_no_common_factor_are_no_other_work(n_grown, factors):
    """Most kernels are fused to others; of those that both run a few pad their input, or each grows as it likes."""

    def step(*, is_fused: bool) -> Trace:
        mine = [
            K(
                at=20 + 50 * place,
                us=180 if place == 9 else 30,
                name=f"shared_{place}",
                blocks=round(400 * factors[place % len(factors)]) if is_fused and place >= 10 - n_grown else 400,
            )
            for place in range(10)
        ]
        other = [
            K(at=670 + 40 * place, us=30, name=f"{'fused' if is_fused else 'eager'}_{place}") for place in range(8)
        ]
        return job([*mine, *other[: 3 if is_fused else 8]], step_us=860 if is_fused else 1000)

    assert "work_changed" not in read(step(is_fused=False), step(is_fused=True))


def test_fewer_other_kernels_that_the_device_waits_less_for_are_named():
    eager = [K(at=20 + 90 * place, us=20, name=f"eager_{place}") for place in range(10)]
    fused = [K(at=20 + 90 * place, us=40, name=f"fused_{place}") for place in range(4)]
    found = read(job(eager), job(fused, step_us=400))
    assert found["launches"].title == "the device waits less for the host: fewer, other kernels do the work"
    few = job([replace(item, name=f"eager_{place}") for place, item in enumerate(fused)], step_us=400)
    assert read(job(eager), few)["launches"].title == "the device waits less for the host"


def test_a_part_that_is_more_than_the_whole_stands_beside_the_others():
    """Waiting for data falls by 300 us, copies rise by 100 us: each has the rest beside it."""
    kernels = [K(at=510 + 60 * place, us=50, name=GEMM) for place in range(6)]
    before = job(kernels, ranges=[host("next_batch", 5, 495, "user_annotation")])
    found = read(
        before, job([copy(10, 100, 600_000), *(replace(item, at=item.at - 390) for item in kernels)], step_us=610)
    )
    said = {name: item.seen("compare.explained_ns").statement for name, item in found.items()}
    assert said["input"] == "explains -495 us; others +105 us; step -390 us"
    assert said["copies"] == "explains +100 us; others -490 us; step -390 us"


def test_recorded_stacks_are_said_where_times_are_those_under_the_profiler():
    kernels = gemms()
    stacks = job(kernels, ranges=[host("train.py(3): step", 1, 900, "python_function")])
    plain, told = (" ".join(compared(one, one).caveats) for one in (job(kernels), stacks))
    assert "with Python stacks, which lengthen the host's part most" in told
    assert "stacks" not in plain
