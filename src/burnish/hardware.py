"""What this machine's processors can do, as far as a choice depends on it."""

from pathlib import Path
from typing import Literal

Dtype = Literal["bfloat16", "float32"]

_CPUINFO = Path("/proc/cpuinfo")
# Of x86: oneDNN's bfloat16 kernels need AVX-512 (BW, VL, DQ), natively from AVX512_BF16 on. Of Arm: "bf16".
_BFLOAT16_FLAGS = ({"avx512bw", "avx512vl", "avx512dq"}, {"avx512_bf16"}, {"amx_bf16"}, {"bf16"})


def computable(dtype: Dtype, device: str, *, cpuinfo: Path = _CPUINFO) -> Dtype:
    """The dtype to compute in: `dtype`, unless it is bfloat16 on a CPU without instructions for it.

    There one matrix product in bfloat16 takes some hundred times as long as in float32. A machine that does not say
    what it has is believed to have them.
    """
    if dtype != "bfloat16" or device != "cpu" or not cpuinfo.exists():
        return dtype
    lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features"))]
    if not lines:
        return dtype
    flags = set(lines[0].partition(":")[2].split())
    return dtype if any(needed <= flags for needed in _BFLOAT16_FLAGS) else "float32"
