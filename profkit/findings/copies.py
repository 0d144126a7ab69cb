"""Findings on copies between host and device."""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.findings import parts
from profkit.findings.kind import FindingKind, Threshold
from profkit.model.documents.report import Bottleneck
from profkit.redact.later import later

_SMALL: Final = {
    "small_bytes": Threshold(64 * 1024, "a copy is small below {} in the median", "docs/method.md", "KiB"),
    "small_copies": Threshold(20, "small copies count as many above {} per step", "docs/method.md", ""),
    "slow_link": Threshold(
        0.3,
        "pinned copies of 1 MiB or more in the median are slow below {} of what PCIe carries",
        "chosen: half as many lanes, or an older host, leave half",
    ),
}
SLOW_BYTES: Final = 2**20


class Link(msgspec.Struct, frozen=True):
    """What joins a device to its host: the most that it carries in one direction."""

    name: str
    bytes_per_ns: float


# PCI-SIG: 8, 16 and 32 GT/s on 16 lanes, less the 2 bits of 130 that carry none. Devices with NVLink to their host (GH200,
# V100 and P100 in POWER machines) are left out; so is what is not known.
LINKS: Final = (
    (later(r"\bH(?:[128]00|20)\b|\bB[123]00\b|RTX 50\d\d|RTX PRO"), Link("PCIe 5.0 x16", 63.0)),
    (
        later(
            r"\bA(?:100|800|30|10G?|16|2|40)\b|\bL(?:40S?|4)\b|RTX A\d{4}|RTX \d{4} (?:SFF )?Ada|GeForce RTX [34]0\d\d"
        ),
        Link("PCIe 4.0 x16", 31.5),
    ),
    (
        later(r"V100-PCIE|V100S|P100-PCIE|\bT4\b|TITAN (?:RTX|V|X)|Quadro RTX|RTX 20\d\d|GTX 1[06]\d\d|\bP40?\b"),
        Link("PCIe 3.0 x16", 15.8),
    ),
)
"""The first that is found in a device's name."""

TO_DEVICE: Final = FindingKind(
    id="h2d.exposed",
    tries=("pinned",),
    title="copies to the device are not hidden",
    bottleneck=Bottleneck.COPY,
    part=parts.COPIES,
    late_phase="copy",
    late_word="to device",
    meaning="Batches are copied to the device while it does nothing else. Copies that overlap kernels cost nothing.",
    measured="The union of host-to-device copies without compute or communication.",
    thresholds={
        "window": Threshold(
            0.03, "fires at {} of the window", "chosen; TraceLens flags 5 % of time, or ten copies of any size"
        ),
        **_SMALL,
    },
    lookalikes=(
        "a copy that waits for its batch is loader time: see input.starved",
        "copies on the default stream wait for the work before them, not for bandwidth",
    ),
    proof="Keep one batch on the device and skip .to(): the step becomes shorter by the exposed time.",
    fixes=(
        "pin_memory=True, non_blocking=True",
        "prefetch one batch ahead on a side stream",
        "send fewer bytes",
    ),
)

FROM_DEVICE: Final = FindingKind(
    id="d2h.exposed",
    title="copies from the device are not hidden",
    bottleneck=Bottleneck.COPY,
    part=parts.COPIES,
    late_phase="copy",
    late_word="from device",
    meaning="Results, activations or weights are copied to the host while the device does nothing else: logging,"
    " evaluation, offloading, a checkpoint inside the step.",
    measured="The union of device-to-host copies without compute or communication.",
    thresholds={
        "window": Threshold(0.03, "fires at {} of the window", "chosen, as for copies to the device"),
        **_SMALL,
    },
    lookalikes=(
        ".item() and .cpu() of small tensors: the copy is short, the waiting is host.sync",
        "a checkpoint or an evaluation that happens to be in this trace",
    ),
    proof="Leave the copies out for some steps: the step becomes shorter by the exposed time.",
    fixes=(
        "non_blocking=True into pinned memory, on a side stream",
        "reduce on the device, copy the result",
        "copy less often",
    ),
)
