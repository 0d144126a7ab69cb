"""What is said of the number formats of matrix kernels, and what is to be done."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.analyzers.base import Vendor
from profkit.analyzers.precision.kernels import FULL, MatmulPrecision
from profkit.analyzers.tools import kernel_profile
from profkit.findings.kernels import DOUBLE, FALLBACK, NO_TF32
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, NextTool, severity_of
from profkit.model.kernel_names import Precision, told
from profkit.model.names import short_name
from profkit.timeline.rates import HALF
from profkit.units import format_fraction, format_ns


def judge(result: MatmulPrecision) -> tuple[Finding, ...]:
    """`precision.fp64`; `precision.no_tf32`, or `precision.fallback`, full precision among half or throughout."""
    return (*_in_double(result), *_in_full_precision(result)) if result.is_of_torch else ()


def _in_double(result: MatmulPrecision) -> Iterator[Finding]:
    scope, fraction = result.scope, result.scope.fraction(result.double_ns)
    if fraction < DOUBLE.limit("window"):
        return
    yield DOUBLE.found(
        confidence=0.6,
        recoverable_ns=scope.per_step(round(result.double_ns * (1 - DOUBLE.limit("ratio")))),
        fraction=fraction,
        evidence=(
            Evidence.time(
                "precision.double_ns",
                result.double_ns,
                f"kernels in double precision run for {format_ns(scope.per_step(result.double_ns))}"
                f" {scope.each}, {format_fraction(fraction)} of the window; the hottest is"
                f" {short_name(result.hottest_double)}",
                expected="0, unless it is needed",
            ),
        ),
        fix=f"unless it is needed: {DOUBLE.fixes[0]}; {DOUBLE.fixes[1]}",
        next_tools=(
            _profile(
                result,
                result.hottest_double,
                "does the kernel wait for the fp64 units?",
                "the FP64 pipe is the busiest, and DFMA or DADD instructions",
            ),
        ),
    )


def _in_full_precision(result: MatmulPrecision) -> Iterator[Finding]:
    full, half = result.share(*FULL), result.share(*HALF)
    if full < FALLBACK.limit("full") or result.share(Precision.UNKNOWN) > FALLBACK.limit("unknown"):
        return
    is_mixed = half >= FALLBACK.limit("full")
    scope, saved = result.scope, result.tf32_saves_ns
    has_fp32 = result.share(Precision.FP32) >= NO_TF32.limit("full")
    if not is_mixed and has_fp32 and scope.fraction(saved) >= NO_TF32.limit("window"):
        yield _without_tf32(result, saved)
        return
    fraction = scope.fraction(result.half_saves_ns)
    if scope.fraction(result.full_covered_ns) < FALLBACK.limit("window"):
        return
    formats = " and ".join(item for item in FULL if result.share(item) >= FALLBACK.limit("full")) or "fp32 and tf32"
    confidence = 0.7 if is_mixed else 0.4
    yield FALLBACK.found(
        title=f"some matrix kernels fall back to {formats}"
        if is_mixed
        else f"matrix kernels run in {formats}, not in half precision",
        severity=None if is_mixed else severity_of(fraction * confidence),  # it may be intended
        confidence=confidence,
        recoverable_ns=scope.per_step(result.half_saves_ns),
        fraction=fraction,
        evidence=(
            _formats(result),
            Evidence.time(
                "precision.full_ns", result.full_covered_ns, f"hottest kernel: {short_name(result.hottest_full)}"
            ),
            _half_saves(result),
        ),
        fix=_cast(result, "" if is_mixed else formats),
        proof=f"Run the module under torch.autocast('cuda', dtype=torch.{_half_name(result)}) and compare kernel name"
        " and time.",
        next_tools=(
            _tried(result, result.hottest_full, "bf16")
            if _has_tensor_cores(result)
            else _profile(
                result,
                result.hottest_full,
                "does the kernel wait for memory, or for the fp32 units?",
                "memory throughput above 80 % of peak: half the bytes help; FMA pipe above 80 %: they do not",
            ),
        ),
    )


def _without_tf32(result: MatmulPrecision, saved: int) -> Finding:
    """`precision.no_tf32`: TF32 is there, and is not used."""
    scope, half_ns = result.scope, max(result.half_saves_ns, saved)
    known = "" if result.rates is None else " on this device"
    return NO_TF32.found(
        confidence=0.6,
        recoverable_ns=scope.per_step(saved),
        fraction=scope.fraction(saved),
        evidence=(
            Evidence.time(
                "precision.tf32_saves_ns",
                saved,
                f"fp32 matrix products take {format_ns(scope.per_step(result.allowable_ns))} {scope.each}; TF32 is at most"
                f" {result.tf32_ratio:g}x as fast{known} and saves at most {format_ns(scope.per_step(saved))}",
                expected=f"< {format_fraction(NO_TF32.limit('window'))} of the window",
            ),
            _formats(result),
            Evidence.time(
                "precision.half_saves_ns",
                half_ns,
                f"hottest kernel: {short_name(result.hottest_allowable)}; half precision would save at most"
                f" {format_ns(scope.per_step(half_ns))} {scope.each}",
            ),
        ),
        fix="call torch.set_float32_matmul_precision('high') (convolutions: torch.backends.cudnn.allow_tf32 = True)"
        f" and compare loss or results; torch.autocast in {_half_name(result)} saves more where the model allows it",
        next_tools=(_tried(result, result.hottest_allowable, "tf32"),),
    )


def _formats(result: MatmulPrecision) -> Evidence:
    full, half = result.share(*FULL), result.share(*HALF)
    others = 1 - full - half
    return Evidence.share(
        "precision.full_share",
        full,
        f"{format_fraction(result.share(Precision.FP32))} of matrix-kernel time is in fp32,"
        f" {format_fraction(result.share(Precision.TF32))} in tf32, {format_fraction(half)} in half precision or lower"
        + (f", {format_fraction(others)} in other or unknown formats" if others >= 0.0005 else ""),
        expected=f"< {format_fraction(FALLBACK.limit('full'))} if bf16 or fp16 is intended",
    )


def _half_saves(result: MatmulPrecision) -> Evidence:
    by_bytes = result.scope.per_step(result.memory_ns)
    others = f", of which kernels that memory limits ({format_ns(by_bytes)}) at most half" if by_bytes else ""
    return Evidence.time(
        "precision.half_saves_ns",
        result.half_saves_ns,
        f"half precision saves at most {format_ns(result.scope.per_step(result.half_saves_ns))}"
        f" {result.scope.each}{others}",
    )


def _tried(result: MatmulPrecision, name: str, change: str) -> NextTool:
    """What comes next: of a kernel whose name leaves open whether tensor cores multiply, that question.

    Else the change itself, tried; and what limits the kernel where it cannot be tried.
    """
    scope = result.scope
    if told(name).on_matrix_units is None:
        purpose, look_for = "does the kernel use tensor cores at all?", "FFMA instructions mean the FP32 path"
        return _profile(result, name, purpose, f"sm__pipe_tensor_cycles_active near 0 % and {look_for}")
    is_there = change == "tf32" or _half_name(result) == "bfloat16"
    if not is_there or scope.vendor is not Vendor.NVIDIA or not scope.command.may_run_python:
        look_for = "the busier of compute and memory: a smaller format gains by its rate, or by its bytes"
        return _profile(result, name, "what limits the kernel?", look_for)
    in_words = "bf16 under autocast" if change == "bf16" else "TF32"
    return NextTool(
        name="profkit try",
        line=scope.command.under("profkit try --only", change),
        purpose=f"how much faster are the steps in {in_words}?",
        look_for="the gain with its interval, and whether the losses stay as they are",
    )


def _profile(result: MatmulPrecision, name: str, purpose: str, look_for: str) -> NextTool:
    launch = result.launches.get(name)
    return kernel_profile(
        result.scope,
        name,
        purpose,
        look_for,
        launch=None if launch is None else launch.before,
        lasts_ns=0 if launch is None else launch.duration_ns,
    )


def _half_name(result: MatmulPrecision) -> str:
    return result.rates.half_name if result.rates is not None else "bfloat16"


def _has_tensor_cores(result: MatmulPrecision) -> bool:
    return result.rates is None or result.rates.has_tensor_cores


def _cast(result: MatmulPrecision, unless_meant: str) -> str:
    """The fix of a fallback; `unless_meant` names the formats that may be intended, "" where half precision is."""
    name, autocast = _half_name(result), f"torch.autocast('cuda', dtype=torch.{_half_name(result)})"
    if not unless_meant:
        cast = f"widen torch.autocast to the module that is left out, or cast it: .to(torch.{name})"
    elif result.trains:  # weights that are cast lose small updates
        cast = f"run forward and loss in {autocast}" + (", with torch.amp.GradScaler" if name == "float16" else "")
    else:
        cast = f"cast the module at load (torch_dtype=torch.{name}), or run it in {autocast}"
    uses_cores = result.scope.vendor is Vendor.NVIDIA and _has_tensor_cores(result)
    if uses_cores and result.fp32_convolution_ns >= FALLBACK.limit("full") * result.total_ns:
        cast += "; keep model and batches in channels_last: more convolutions find kernels with tensor cores"
    if result.scope.fraction(result.tf32_saves_ns) >= NO_TF32.limit("window"):
        cast += "; where fp32 is intentional: torch.set_float32_matmul_precision('high'), on Ampere or later"
    return (
        f"unless {unless_meant} {'are' if ' and ' in unless_meant else 'is'} intended: {cast}" if unless_meant else cast
    )


def present(result: MatmulPrecision) -> Section:
    """Show the formats."""
    rows = tuple(
        sorted(((name, ns, ns / result.total_ns) for name, ns in result.by_format.items()), key=lambda r: -r[1])
    )
    return Section(
        analyzer="precision",
        title="precision of matrix kernels",
        values={"by_format_ns": dict(result.by_format)},
        tables=(
            TableView.of(
                "matrix kernels by number format", {"format": "text", "time": "ns", "share": "fraction"}, rows
            ),
        ),
    )
