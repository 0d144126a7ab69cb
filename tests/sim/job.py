"""A drawn job: what its host does, item by item, and how device and host run through it (ns)."""

import random
from collections.abc import Iterator

import msgspec

US = 1_000
MS = 1_000_000
COMPUTE, COPIES, COMM = 7, 20, 13


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the host does. `what`: step, op, sync, event, item, copy, malloc, free, data, python."""

    what: str
    host_ns: int = 0
    """Its own time on the host: before the call of an operator, all of what does not wait."""
    call_ns: int = 0
    device_ns: int = 0
    stream: int = COMPUTE
    latency_ns: int = 0
    """From its launch to its start on an idle device."""
    name: str = ""
    after: int | None = None
    """The stream for all of whose work until then its operation waits."""
    extra_ns: int = 0
    """How long it waits, launched and its turn, for something that no trace shows."""
    back: int = 0
    """Of an event: how many operations before the last one it was recorded."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A program, and the machine it runs on."""

    seed: int
    kinds: tuple[str, ...]
    """The causes that it has."""
    backlog: tuple[Item, ...]
    """What ran before the capture began: its launches are not recorded."""
    items: tuple[Item, ...]
    turnaround_ns: int
    queue: int
    """Launches that the driver takes before it holds the host."""


CAUSES = {
    "sync": ("sync", "event", "item", "copy"),
    "allocator": ("malloc", "free"),
    "data": ("data",),
    "host": ("op", "python"),
}
"""Which items a cause sits in."""


def drawn(seed: int) -> Job:
    """The job of a seed."""
    rng = random.Random(seed)  # noqa: S311 - a drawn job is no secret
    kinds = tuple(kind for kind, chance in _CHANCES.items() if rng.random() < chance)
    latency = rng.choice([5, 6, 8, 12, 45]) * US
    make = _Maker(rng, kinds, latency)
    backlog = tuple(make.ops(rng.randint(20, 300), scale=2.0)) if "backlog" in kinds else ()
    items = [item for number in range(rng.randint(3, 8)) for item in make.step(number)]
    return Job(
        seed=seed, kinds=kinds, backlog=backlog, items=tuple(items), turnaround_ns=rng.randint(700, 2_000), queue=1024
    )


_CHANCES = {
    "sync": 0.65,
    "item": 0.4,
    "event": 0.2,
    "comm": 0.25,
    "strange": 0.15,
    "copy": 0.25,
    "malloc": 0.3,
    "free": 0.25,
    "data": 0.45,
    "launcher": 0.35,
    "prefetch": 0.3,
    "backlog": 0.3,
    "python": 0.5,
}


class _Maker:
    """Draws the items of one job; its sizes are the same in every step, the values vary."""

    def __init__(self, rng: random.Random, kinds: tuple[str, ...], latency_ns: int) -> None:
        self.rng, self.kinds, self.latency_ns = rng, kinds, latency_ns
        self.n_ops = rng.randint(15, 120)
        self.kernel_ns = rng.choice([3, 8, 20, 60, 150]) * US
        self.dispatch_ns = rng.choice([4, 8, 15, 30]) * US
        self.n_waits = rng.choice([1, 1, 2, 4, 10])
        self.data_ns = rng.choice([200, 1_000, 4_000, 12_000]) * US
        self.alloc_ns = rng.choice([30, 150, 800, 2_500]) * US
        self.slow_ns = rng.choice([250, 800, 2_250]) * US
        self.python_ns = rng.choice([20, 100, 600]) * US
        self.slow_at = rng.sample(range(self.n_ops), min(rng.choice([1, 2, 5]), self.n_ops))
        self.wait_at = [[rng.randrange(self.n_ops) for _ in range(self.n_waits)] for _ in range(6)]
        self.comm_ns = rng.choice([100, 400, 1_500]) * US

    def about(self, mean_ns: float) -> int:
        """A time near this one, seldom twice as long."""
        return max(int(mean_ns * self.rng.lognormvariate(-0.06, 0.35)), 200)

    def ops(self, n: int, *, scale: float = 1.0) -> Iterator[Item]:
        """Operators that launch one kernel each."""
        for _ in range(n):
            yield Item(
                what="op",
                name="aten::mm",
                host_ns=self.about(self.dispatch_ns),
                call_ns=self.about(4 * US),
                device_ns=self.about(self.kernel_ns * scale),
                latency_ns=self.about(self.latency_ns),
            )

    def step(self, number: int) -> Iterator[Item]:
        """One step, with what the job has in it."""
        yield Item(what="step", name=f"ProfilerStep#{number}")
        if "data" in self.kinds:
            yield Item(what="data", host_ns=self.about(self.data_ns))
        if "prefetch" in self.kinds:
            yield self.copied("prefetch", COPIES)
        if "copy" in self.kinds:
            yield self.copied("copy", COMPUTE)
        for place, item in enumerate(self.ops(self.n_ops)):
            if "launcher" in self.kinds and place in self.slow_at:
                yield msgspec.structs.replace(item, name="", host_ns=self.about(self.slow_ns))
            else:
                is_strange = "strange" in self.kinds and self.rng.random() < 0.02
                yield msgspec.structs.replace(
                    item,
                    after=COPIES if "prefetch" in self.kinds and place == self.n_ops // 2 else None,
                    extra_ns=self.about(500 * US) if is_strange else 0,
                )
            if "comm" in self.kinds and place in (self.n_ops // 3, 2 * self.n_ops // 3):
                yield self.reduced()
            yield from self.between(place)
        if "comm" in self.kinds:  # the optimizer waits for what was reduced
            yield msgspec.structs.replace(next(self.ops(1)), after=COMM)

    def between(self, place: int) -> Iterator[Item]:
        """What comes after the operator at this place."""
        for kind, places in zip(("sync", "item", "malloc", "free", "python", "event"), self.wait_at, strict=True):
            if kind not in self.kinds or place not in places:
                continue
            if kind == "item":
                yield Item(
                    what="item",
                    host_ns=self.about(6 * US),
                    call_ns=self.about(4 * US),
                    device_ns=self.about(2 * US),
                    latency_ns=self.about(self.latency_ns),
                )
            elif kind == "event":
                yield Item(what="event", host_ns=self.about(2 * US), back=self.rng.choice([3, 10, 40]))
            elif kind in ("sync", "free"):
                yield Item(what=kind, host_ns=self.about(3 * US if kind == "sync" else self.alloc_ns / 4))
            else:
                yield Item(what=kind, host_ns=self.about(self.alloc_ns if kind == "malloc" else self.python_ns))

    def reduced(self) -> Item:
        """A collective behind the compute so far, on a stream of its own."""
        return Item(
            what="op",
            name="c10d::allreduce_",
            host_ns=self.about(20 * US),
            call_ns=self.about(5 * US),
            device_ns=self.about(self.comm_ns),
            stream=COMM,
            latency_ns=self.about(self.latency_ns),
            after=COMPUTE,
        )

    def copied(self, what: str, stream: int) -> Item:
        """A copy of a batch to the device."""
        return Item(
            what="copy" if what == "copy" else "op",
            name="aten::copy_",
            host_ns=self.about(10 * US),
            call_ns=self.about(5 * US),
            device_ns=self.about(400 * US),
            stream=stream,
            latency_ns=self.about(self.latency_ns),
        )


def without(job: Job, cause: str) -> Job:
    """The job with a cause taken out of what was captured."""
    return msgspec.structs.replace(job, items=tuple(kept for item in job.items if (kept := _spared(item, cause))))


def _spared(item: Item, cause: str) -> Item | None:
    if item.what not in CAUSES[cause] and not (cause == "host" and item.what in ("item", "copy")):
        return item
    if cause == "host":
        return msgspec.structs.replace(item, host_ns=0, call_ns=0)
    if item.what in ("item", "copy"):  # the copy stays, nobody waits for it
        return msgspec.structs.replace(item, what="op")
    return None
