"""A program of the benchmark with its steps marked for TraceML, which runs this file: `traceml run` takes no module."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

_Batch = TypeVar("_Batch")


def marked(batches: Iterable[_Batch], model: Any, trace_step: Any) -> Iterator[_Batch]:
    """The batches, each with TraceML's mark around all that is done with it before the next one is asked for."""
    for batch in batches:
        with trace_step(model):
            yield batch


def main() -> None:
    """Trains, with each step marked."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    import traceml_ai

    from analyses.accuracy import program

    train = program.train
    traceml_ai.init(mode="auto")

    def with_marks(family: Any, model: Any, batches: Any, *rest: Any) -> Any:
        return train(family, model, marked(batches, model, traceml_ai.trace_step), *rest)

    program.train = with_marks
    program.main()


if __name__ == "__main__":
    main()
