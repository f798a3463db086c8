"""bfloat16 is computed where the processor can."""

from pathlib import Path

import pytest

from burnish.hardware import Dtype, computable


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ("flags\t\t: fpu fma avx2", "float32"),
        ("flags\t\t: fpu avx2 avx512f avx512dq avx512bw avx512vl", "bfloat16"),
        ("flags\t\t: fpu avx2 avx512f avx512bw", "float32"),
        ("flags\t\t: fpu avx2 avx512_bf16", "bfloat16"),
        ("Features\t: fp asimd bf16", "bfloat16"),
        ("Features\t: fp asimd", "float32"),
        ("Processor\t: unknown", "bfloat16"),
    ],
)
def test_what_the_processor_says_decides(flags: str, dtype: Dtype, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{flags}\n\nprocessor\t: 1\n{flags}\n")
    assert computable("bfloat16", "cpu", cpuinfo=cpuinfo) == dtype


def test_what_was_asked_for_stays_where_nothing_speaks_against_it(tmp_path: Path) -> None:
    weak = tmp_path / "cpuinfo"
    weak.write_text("flags\t: fpu\n")
    assert computable("float32", "cpu", cpuinfo=weak) == "float32"
    assert computable("bfloat16", "cuda", cpuinfo=weak) == "bfloat16"
    assert computable("bfloat16", "cpu", cpuinfo=tmp_path / "none") == "bfloat16"
