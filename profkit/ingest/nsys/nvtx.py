"""NVTX ranges: which are torch's operators, which the user's, and what they are called.

`torch.autograd.profiler.emit_nvtx` writes every operator as a range whose text ends in `, seq = S, op_id = N, sizes =
[...]` (torch/csrc/autograd/profiler_legacy.cpp, getNvtxStr): the tails make every text different and are cut off. User
code (`torch.cuda.nvtx.range_push`), FSDP and libraries (NCCL in a domain of its own) write plain texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from profkit.model.names import span_kind_of
from profkit.model.trace import SpanKind

RANGE_TYPES: Final = (59, 60, 70, 71)
"""ENUM_NSYS_EVENT_TYPE: push/pop and start/end ranges, of NVTX and of NVTXT; marks, names and domains are others."""
THREAD_NAME_TYPE: Final = 39

CUT_STEP: Final = "profkit: cut step"
"""The range around the end of a step that was not over (profkit/capture/inside/record/recorder.py)."""

_OP_ID: Final = b", op_id = "
_SEQUENCE: Final = b", seq = "
_OTHER_TAIL: Final = re.compile(rb", (?:stashed seq|sizes|input_op_ids) ?= .*", re.DOTALL)
# DLProf and PyProf write a call as a Python dict: {'mod': 'torch', 'op': 'conv2d', 'args': [...]}.
_PYPROF_NAME: Final = re.compile(
    rb"""['"]mod['"]: *['"]([^'"]{1,200})['"].{1,200}?['"]op['"]: *['"]([^'"]{1,200})""", re.DOTALL
)

# record_function ranges of torch itself: annotations, as Kineto has them, though emit_nvtx writes them like operators.
_ANNOTATION: Final = re.compile(
    r"^(?:FSDP::|FullyShardedDataParallel|DistributedDataParallel|DataParallel\.|nccl:|gloo:|mpi:|ucc:|Optimizer\."
    r"|enumerate\(Data|ProfilerStep|## |Torch-Compiled|\[pl\])"
)
_OPERATOR: Final = re.compile(r"^(?:aten|autograd|_?c10d\w*|prims?|quantized|torch\w*|fbgemm|flash_attn\w*|xformers)::")
_BARE_OPERATORS: Final = frozenset({"detach", "detach_", "record_param_comms"})

_STEP: Final = re.compile(
    r"\[?(?:(?:train(?:ing)?|global|profile[rd]?|outer)[\s_.-]*)?(?:step|iter(?:ation)?|batch)[\s_:#=.-]*+\d*+(?:\s*+/\s*+\d+)?\]?",
    re.IGNORECASE,
)
_OPTIMIZER: Final = re.compile(r"opt(?:im(?:izer)?)?[\s_.:-]*step", re.IGNORECASE)
_LOADER: Final = re.compile(
    r"data[\s_-]*(?:load(?:er|ing)?|fetch(?:ing)?|wait)|(?:get|next|load|fetch)[\s_-]*(?:batch|data)", re.IGNORECASE
)


def range_kind_of(name: str) -> SpanKind:
    """What an NVTX range stands for: as record_function ranges do, or by what people call their own."""
    kind = span_kind_of(name)
    if kind is not SpanKind.OTHER:
        return kind
    patterns = ((SpanKind.STEP, _STEP), (SpanKind.OPTIMIZER, _OPTIMIZER), (SpanKind.LOADER, _LOADER))
    return next((kind for kind, pattern in patterns if pattern.fullmatch(name)), SpanKind.OTHER)


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a range, whether it is an operator, and what it stands for if not."""

    name: str
    is_operator: bool
    kind: SpanKind


class Labels(msgspec.Struct):
    """The distinct texts of ranges, by code; tails are cut before texts are compared, since no two tails are equal."""

    _codes: dict[tuple[bytes, bytes, bytes], int] = msgspec.field(default_factory=dict)
    _labels: list[Label] = msgspec.field(default_factory=list)

    def codes(self, texts: Iterable[bytes]) -> list[int]:
        """The codes of ranges' texts."""
        known, out = self._codes, []
        for text in texts:
            head, has_op_id, _ = text.partition(_OP_ID)
            head, has_sequence, _ = head.partition(_SEQUENCE)
            if head[:1] == b"{":
                match = _PYPROF_NAME.search(head)
                head, has_sequence = (match[1] + b"." + match[2], _SEQUENCE) if match else (b"{...}", b"")
            out.append(known.setdefault((head, has_op_id, has_sequence), len(known)))
        return out

    def all(self) -> list[Label]:
        """The labels by code."""
        for head, has_op_id, has_sequence in islice(self._codes, len(self._labels), None):
            self._labels.append(_label(head, has_op_id=bool(has_op_id), has_sequence=bool(has_sequence)))
        return self._labels


def _label(head: bytes, *, has_op_id: bool, has_sequence: bool) -> Label:
    name = _OTHER_TAIL.sub(b"", head).decode(errors="replace")
    is_operator = _is_operator(name, has_op_id=has_op_id, has_sequence=has_sequence)
    return Label(name=name, is_operator=is_operator, kind=SpanKind.OTHER if is_operator else range_kind_of(name))


def _is_operator(name: str, *, has_op_id: bool, has_sequence: bool) -> bool:
    """Whether a range is an operator; a user's `record_function` has an op_id too, but no sequence number."""
    if _OPERATOR.match(name):
        return True
    if _ANNOTATION.match(name) or range_kind_of(name) is not SpanKind.OTHER:
        return False
    is_named_so = "::" in name or name[:1].isupper() or name in _BARE_OPERATORS
    return has_sequence or (has_op_id and is_named_so)
