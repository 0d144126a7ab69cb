"""Hosts on one machine, with slow links between them: network namespaces, veth links, a bridge, `tc ... tbf`.

    from workloads.netlab import lab

    with lab(hosts=2, rate="200mbit", slow="both") as hosts:
        job = hosts.torchrun(["-m", "workloads.ddp", "--hidden", "256", "--json"])
        ended = hosts.run(job, output=file, timeout_s=300)   # one command a host, all at once
        assert [one.code for one in ended] == [0, 0]
        hosts.run([["hostname"], ["ip", "address"]])

`slow` is "both" (or "all": what each host sends), "none", or hosts such as "host1" (what it sends and receives),
"host1:out", "host1:in", "host1,host2:out". The hosts are host0, host1 and so on, at 10.77.0.1 and on, and find each
other by name. Ranks of torchrun meet on host0; gloo takes the lab's network (GLOO_SOCKET_IFNAME). Every host has
process ids of its own, as containers have, and the machine's files.

`why_not()` says in one sentence why no lab can be made here, "" where one can; `lab` raises `NoLabError` with it. Root
needs nothing else; other users need user namespaces. Nothing is left behind: the namespaces are held by processes that
end when this one does, also by SIGKILL, and the kernel then ends what runs in them and removes the links.

As a command, in the place of torchrun: `python -m workloads.netlab --slow both -- -m workloads.ddp --json`; under
`profkit capture --` it is captured like any other. `clocks.set_apart` writes a capture as hosts whose clocks differ
would have.

Begin with `plan` (what a lab consists of, as commands), then `hosts` (which runs them).
"""

from __future__ import annotations

from workloads.netlab.hosts import Ended, Hosts, lab
from workloads.netlab.rights import NoLabError, why_not

__all__ = ["Ended", "Hosts", "NoLabError", "lab", "why_not"]
