"""A CPU's budget: what is work and what is waiting for a collective."""

from profkit.testing import span, trace_of
from profkit.timeline.cpu import cpu_budget

US = 1000
STEP = span("ProfilerStep#0", 0, 2000 * US)
COLLECTIVE = span("gloo:all_gather", 100 * US, 900 * US, tid=2000)


def budget(*ranges: tuple[str, int, int]):
    rows = [span(name, start * US, end * US, cat="cpu_op") for name, start, end in ranges]
    return cpu_budget(trace_of([STEP, COLLECTIVE, *rows]))


def test_an_operator_that_asks_for_a_collective_waits():
    found = budget(("c10d::_allgather_base_", 100, 900), ("aten::mm", 1000, 1400))
    assert found.compute.total_ns == 400 * US
    assert found.comm_exposed.total_ns == 800 * US


def test_the_record_of_a_collective_is_no_work_beside_its_operator_or_alone():
    """NCCL's process group writes record_param_comms inside c10d's operator; traces without devices hold it alone."""
    calls = ("c10d::allreduce_", 100, 300), ("record_param_comms", 110, 290), ("record_param_comms", 1000, 1400)
    found = budget(*calls, ("aten::mm", 1500, 1700))
    assert found.compute.total_ns == 200 * US
    assert found.n_leaf_ops == 1


def test_a_node_that_waits_for_a_collective_does_no_work():
    """FSDP waits inside its post-backward node; what runs in operators of its own is work all the same."""
    found = budget(("RegisterPostBackwardFunctionBackward", 50, 950), ("aten::copy_", 300, 400))
    assert found.compute.total_ns == (50 + 50 + 100) * US
    assert found.comm_exposed.total_ns == 700 * US


def test_a_function_of_the_script_that_waits_for_a_collective_does_no_work():
    """A gather inside the forward() of a torch.autograd.Function was told as 9 % of compute, hidden."""
    found = budget(("ShardedSoftmax", 50, 950), ("aten::cat", 300, 400))
    assert found.compute.total_ns == (50 + 50 + 100) * US
    assert found.comm_exposed.total_ns == 700 * US


def test_an_operator_works_outside_its_children_too():
    """aten::mm calls a view and then multiplies: what follows the view is its work, beside a collective or not."""
    found = budget(("aten::mm", 100, 900), ("aten::view", 110, 112))
    assert found.compute.total_ns == 790 * US  # the 10 us before the view are short enough to be dispatch
    assert found.comm_exposed.total_ns == 10 * US


def test_an_operator_beside_a_collective_hides_it():
    found = budget(("aten::mm", 100, 900))
    assert found.compute.total_ns == 800 * US
    assert found.comm_exposed.total_ns == 0


def test_a_call_in_another_process_is_waited_for():
    """The profiler writes rpc_async as an operator, from the call to the answer: a job that waited "computed"."""
    call = "rpc_async#_get_value_on_remote(master -> worker1)"
    rows = [STEP, span(call, 100 * US, 1500 * US, cat="cpu_op"), span("aten::mm", 200 * US, 600 * US, cat="cpu_op")]
    found = cpu_budget(trace_of(rows))
    assert found.compute.total_ns == 400 * US
    assert found.comm_exposed.total_ns == 1000 * US
