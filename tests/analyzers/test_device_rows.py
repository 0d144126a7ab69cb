"""Copies and matrix kernels of a device, counted to the byte and the nanosecond."""

from profkit.analyzers.precision import measure as measure_precision
from profkit.analyzers.transfers import measure
from profkit.timeline import Facts
from tests.analyzers.test_findings import Job

US = 1000


def test_copies_by_direction() -> None:
    job = Job(n_steps=1)
    job.work("gemm_bf16", 100, 200)
    job.copy("Memcpy HtoD (Pageable -> Device)", 150, 250, n_bytes=1000)
    job.copy("Memcpy HtoD (Pinned -> Device)", 300, 310, n_bytes=0)
    job.copy("Memcpy HtoD (Pinned -> Device)", 320, 330, n_bytes=500)
    job.copy("Memcpy DtoH (Device -> Pageable)", 400, 440, n_bytes=7)
    found = measure(Facts.of(job.trace()))
    way = found.to_device
    assert (way.n_copies, way.n_bytes, way.median_bytes) == (3, 1500, 500)
    assert (way.total_ns, way.exposed_ns, way.pageable_fraction) == (120 * US, 70 * US, 1 / 3)
    assert (found.from_device.n_copies, found.from_device.n_bytes, found.from_device.exposed_ns) == (1, 7, 40 * US)


def test_matrix_kernels_by_format() -> None:
    job = Job(n_steps=1)
    job.work("ampere_bf16_s16816gemm_bf16_128x128", 100, 200)
    job.work("ampere_sgemm_128x64_tn", 300, 340)
    job.work("ampere_sgemm_128x64_tn", 400, 410)
    job.work("vectorized_elementwise", 500, 700)
    found = measure_precision(Facts.of(job.trace()))
    assert found.by_format == {"bf16": 100 * US, "fp32": 50 * US}
    assert (found.full_covered_ns, found.hottest_full) == (50 * US, "ampere_sgemm_128x64_tn")
