"""Hosts on one machine: what a lab is planned to be, one that is really there, and clocks set apart afterwards."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import profkit
from tests.conftest import rarely
from workloads import netlab
from workloads.netlab import __main__ as command_line
from workloads.netlab import clocks, hosts, plan, rights

TRACES = hosts.ROOT / "traces"
needs_lab = pytest.mark.skipif(bool(netlab.why_not()), reason=f"no lab here: {netlab.why_not()}")


def _limits(slow: str, n_hosts: int = 3) -> list[set[str]]:
    return [set(host.limits) for host in plan.planned(hosts=n_hosts, rate="200mbit", slow=slow).hosts]


def test_each_host_sends_slowly_where_all_links_are_slow():
    assert _limits("both") == _limits("all") == [{"out"}, {"out"}, {"out"}]
    assert _limits("none") == [set(), set(), set()]


def test_a_slow_host_sends_and_receives_slowly_unless_a_direction_is_named():
    assert _limits("host1") == [set(), {"in", "out"}, set()]
    assert _limits("host1:in") == [set(), {"in"}, set()]
    assert _limits("host0:out,host2") == [{"out"}, set(), {"in", "out"}]


@pytest.mark.parametrize("slow", ["host3", "host", "fast", "host1:up", "", "host1,", "none,host1"])
def test_what_no_host_is_called_is_refused(slow):
    with pytest.raises(ValueError, match="host0 to host2"):
        plan.planned(hosts=3, rate="200mbit", slow=slow)


@pytest.mark.parametrize("rate", ["200", "0mbit", "200 mbit", "fast", "-1mbit"])
def test_a_rate_is_as_tc_writes_it(rate):
    with pytest.raises(ValueError, match="such as 200mbit"):
        plan.planned(hosts=2, rate=rate, slow="both")
    assert plan.bits_per_s("200mbit") == 200_000_000


@pytest.mark.parametrize("n_hosts", [1, 9])
def test_a_lab_has_several_hosts(n_hosts):
    with pytest.raises(ValueError, match="2 to 8 hosts"):
        plan.planned(hosts=n_hosts, rate="200mbit", slow="both")


def test_the_limit_is_on_the_end_of_the_link_that_sends():
    one = plan.planned(hosts=2, rate="100mbit", slow="host1").hosts[1]
    lab = plan.planned(hosts=2, rate="100mbit", slow="host1")
    tbf = ("root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "50ms")
    assert list(plan.host_commands(one, lab))[-1] == ("tc", "qdisc", "add", "dev", "eth0", *tbf)
    assert list(plan.link_commands(one, 77, lab))[-1] == ("tc", "qdisc", "add", "dev", "port1", *tbf)
    assert not any("tc" in command for command in plan.host_commands(lab.hosts[0], lab))


def test_a_user_namespace_is_made_only_where_nobody_is_root():
    assert "--user" not in plan.holder("host0", is_root=True)
    assert "--user" in plan.holder("host0", is_root=False)
    assert "--preserve-credentials" in plan.entering(77, ("true",), namespaces=("net",), is_root=False)


def test_each_host_starts_its_ranks_of_one_job():
    lab = plan.planned(hosts=2, rate="200mbit", slow="none")
    commands = [plan.torchrun(lab, host, ("-m", "x"), ranks_per_host=2, python="python") for host in lab.hosts]
    assert " ".join(commands[1]) == (
        "python -m torch.distributed.run --nnodes 2 --node-rank 1 --rdzv-backend static --master-addr 10.77.0.1"
        " --master-port 29500 --nproc-per-node 2 -m x"
    )
    assert {one for one in zip(*commands, strict=True) if len(set(one)) > 1} == {("0", "1")}


def test_what_is_not_installed_is_said_with_its_package(monkeypatch):
    there = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tc" else there(name))
    assert rights.why_not.__wrapped__() == "tc is not installed: apt-get install iproute2"


def test_where_namespaces_are_refused_the_system_says_why(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    refused = subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: refused)
    reason = rights.why_not.__wrapped__()
    assert reason.startswith("network namespaces are not allowed here")
    assert reason.endswith("Operation not permitted")
    monkeypatch.setattr(hosts, "why_not", lambda: reason)
    with pytest.raises(netlab.NoLabError, match="not permitted"), netlab.lab():
        pass


def test_the_command_under_capture_does_the_same(tmp_path):
    given = ["--hosts", "3", "--slow", "host1", "-o", str(tmp_path), "--", "-m", "workloads.ddp", "--hidden", "64"]
    again = command_line.under_capture(command_line.read_arguments(given))
    inner = command_line.read_arguments(again[again.index("workloads.netlab") + 1 :])
    assert (inner.hosts, inner.slow, inner.job, inner.output) == (3, "host1", given[-4:], None)


@pytest.mark.parametrize("given", [[], ["--slow", "host7", "--", "-m", "x"], ["--hosts", "1", "--", "-m", "x"]])
def test_a_wrong_command_line_ends_with_a_usage_error(given):
    with pytest.raises(SystemExit, match="2"):
        command_line.read_arguments(given)


TELLS = """
import socket, sys, time
n = 2_000_000
def took(there):
    left, begun = n, time.perf_counter()
    while left: left -= len(there.recv(min(left, 1 << 20)))
    return time.perf_counter() - begun
if sys.argv[1] == "0":
    server = socket.create_server(("10.77.0.1", 7000))
    there = server.accept()[0]
    received = took(there)
    there.sendall(bytes(n))
    there.recv(1)
    open(sys.argv[2], "w").write(f"{socket.gethostname()} {received}")
else:
    until = time.time() + 10
    while True:
        try: there = socket.create_connection(("host0", 7000)); break
        except OSError:
            if time.time() > until: raise
            time.sleep(0.02)
    there.sendall(bytes(n))
    received = took(there)
    there.sendall(b"x")
    open(sys.argv[2], "w").write(f"{socket.gethostname()} {received}")
"""


@needs_lab
def test_a_slow_direction_has_the_rate_and_the_other_has_not(tmp_path):
    files = [tmp_path / str(number) for number in range(2)]
    with netlab.lab(hosts=2, rate="20mbit", slow="host1:out") as pair:
        commands = [[sys.executable, "-c", TELLS, str(number), str(path)] for number, path in enumerate(files)]
        assert [one.code for one in pair.run(commands, timeout_s=60)] == [0, 0]
    (first, slow), (second, fast) = (path.read_text().split() for path in files)
    assert (first, second) == ("host0", "host1")
    assert 0.7 < float(slow) < 1.2  # 2 MB at 20 Mbit/s are 0.8 s, of which 64 KiB go at once
    assert float(fast) < float(slow)  # a few ms, were the machine quiet
    assert socket.gethostname() not in ("host0", "host1")


COUNTS = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("connections", sys.argv[3])
connections = importlib.util.module_from_spec(spec)
spec.loader.exec_module(connections)
connections._is_one_of_several = lambda: True
watch = connections.Connections()
watch.begin()
def told():
    open(sys.argv[2] + ".json", "w").write(json.dumps(watch.end()))
"""


@needs_lab
def test_the_sender_into_the_slow_direction_has_data_under_way_all_the_time(tmp_path):
    reader = hosts.ROOT / "profkit" / "capture" / "inside" / "record" / "connections.py"
    asked = TELLS.replace("there.recv(1)", "there.recv(1); told()")
    script = COUNTS + asked.replace('there.sendall(b"x")', 'told(); there.sendall(b"x"); there.recv(1)')
    files = [tmp_path / str(number) for number in range(2)]
    with netlab.lab(hosts=2, rate="20mbit", slow="host1:out") as pair:
        commands = [
            [sys.executable, "-c", script, str(number), str(path), str(reader)] for number, path in enumerate(files)
        ]
        assert [one.code for one in pair.run(commands, timeout_s=60)] == [0, 0]
    (fast,), (slow,) = (json.loads(path.with_suffix(".json").read_text()) for path in files)
    assert fast["id"] == slow["id"]
    assert {fast["end"], slow["end"]} == {0, 1}
    assert slow["busy_ns"] > 0.6e9  # 2 MB at 20 Mbit/s are 0.8 s, of which 64 KiB go at once
    assert fast["busy_ns"] < 0.5 * slow["busy_ns"]  # some ms, and what acknowledgements take


@needs_lab
@pytest.mark.long(25)
@pytest.mark.afresh
@pytest.mark.torch
def test_the_rank_behind_a_slow_link_is_named(tmp_path):
    pytest.importorskip("torch")
    given = ["--hosts", "3", "--slow", "host1:out", "-o", str(tmp_path), "--steps", "16"]
    job = ["--", "-m", "workloads.ddp", "--hidden", "256", "--batch", "32"]
    assert command_line.main([*given, *job]) == 0
    (found,) = [finding for finding in profkit.triage([str(tmp_path)]).findings if finding.id == "comm.bandwidth"]
    assert " slow network link of rank 1," in found.title
    assert found.next_tools[0].command == "iperf3 -c host0"


@needs_lab
def test_when_one_host_fails_the_others_are_ended(monkeypatch):
    monkeypatch.setattr(hosts, "_AFTER_CRASH_S", 0.3)
    with netlab.lab(hosts=2, slow="none") as pair:
        ended = pair.run([["sh", "-c", "exit 3"], ["sleep", "60"]])
    assert ended[0] == netlab.Ended(host="host0", code=3)
    assert ended[1].code != 0


KILLED = """
import os, time
from workloads.netlab import lab
with lab(hosts=2, slow="none") as pair:
    print(*pair._pids.values(), flush=True)
    pair.run([["sh", "-c", "sleep 60 & sleep 60"]] * 2)
"""


@needs_lab
@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_process_that_made_the_lab(number):
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=hosts.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        pids = [int(text) for text in process.stdout.readline().split()]
        time.sleep(0.3)
        networks = [str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in pids]
        process.send_signal(number)
        process.wait(20)
    assert len(pids) == 2
    until = time.monotonic() + 10
    while _in_networks(networks) and time.monotonic() < until:
        time.sleep(0.05)
    assert _in_networks(networks) == []


def _in_networks(networks: list[str]) -> list[str]:
    """The processes in these network namespaces."""
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found += [str(path)] if str(path.readlink()) in networks else []
        except OSError:
            continue
    return found


# --- clocks


def test_a_base_time_moves_to_the_nanosecond():
    text = '{"traceEvents": [{"ts": 4345934709677.850}], "baseTimeNanoseconds": 1790857026000000001}'
    assert '"baseTimeNanoseconds": 1790857029000000001' in clocks.shifted(text, offset_ns=3_000_000_000)
    moved = clocks.shifted(text, offset_ns=40_000_001, in_base=False)
    assert '"ts": 4345934749677.851' in moved
    assert '"baseTimeNanoseconds": 1790857026000000001' in moved
    with pytest.raises(ValueError, match="no base time"):
        clocks.shifted('{"traceEvents": []}', offset_ns=1)


@pytest.mark.parametrize("offset_ns", [40_000_000, rarely(1.2, -3_000_000_000)])
@pytest.mark.parametrize("in_base", [True, False])
def test_clocks_apart_change_no_verdict(tmp_path, offset_ns, in_base):
    captured = TRACES / "ddp_straggler_ws4"
    clocks.set_apart(captured, tmp_path, {1: offset_ns, 3: 2 * offset_ns}, in_base=in_base)
    before, after = (profkit.triage([str(folder)]).verdict for folder in (captured, tmp_path))
    assert after.headline == before.headline
    assert after.bottleneck is before.bottleneck
    assert json.loads((tmp_path / "capture.json").read_text()) == json.loads((captured / "capture.json").read_text())
