"""Makes libtorch findable for mlc_native._core wherever torch is installed.

libmlc_native looks for libtorch beside its own package (the wheel in the same site-packages). When
torch lies elsewhere (user site, `venv --system-site-packages`), loading its libraries first settles
the matter: the loader then finds them by name. torch itself is not imported; that would take
seconds.
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path


def preload() -> None:
    """Loads libtorch_cpu of the torch that `import torch` would take.

    Raises ImportError when torch is not installed.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("mlc_native needs torch: pip install torch")
    lib = Path(spec.submodule_search_locations[0]) / "lib"
    for name in ("libc10.so", "libtorch_cpu.so"):
        if (lib / name).exists():
            ctypes.CDLL(str(lib / name), mode=ctypes.RTLD_GLOBAL)
