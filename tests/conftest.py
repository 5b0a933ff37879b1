"""Settings that hold for every test: strict promotion, caches shared between runs, one scale for random campaigns."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent
_CACHE = _ROOT / ".cache"
os.environ.setdefault(
    "TOKTIER_JAX_CACHE", str(_CACHE / "toktier_jax")
)  # compiled programs and probes, keyed by version
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the reference warns after a fork otherwise
os.environ["RUST_BACKTRACE"] = "0"  # on some texts the reference panics, and the tests say so
# Compiling takes most of the tests' time, and integers do not depend on how well their code is optimized
_KNOWN = " --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""  # XLA exits if unknown
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0" + _KNOWN)
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may reach for the network


def pytest_configure(config: pytest.Config) -> None:
    import jax

    from toktier_jax import routes

    routes.TINY = 0  # the tests are about the device's ids, however short a text is
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_compilation_cache_dir", str(_CACHE / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    if "PYTEST_XDIST_WORKER" not in os.environ:  # before the workers start
        _forget_stale_programs()


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all tests of a tokenizer, or of a file: what they share is made once."""
    from tests import artifacts

    for item in items:
        parameters = getattr(item, "callspec", None)
        given = parameters.params if parameters else {}
        tokenizer = given.get("subject") or (given.get("name") if given.get("name") in artifacts.NAMES else None)
        item.add_marker(pytest.mark.xdist_group(tokenizer or f"{item.path.parent.name}/{item.path.stem}"))


def _forget_stale_programs() -> None:
    """Programs of other sources are never read again, but each leaves megabytes. Class probes stay: they depend on the
    engines and the probing code alone.
    """
    package = _ROOT / "toktier_jax"
    sources = [package / "plan.py", *sorted(package.glob("program/*.py")), *sorted(package.glob("spec/*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = _CACHE / "toktier_jax" / "sources"
    if not stamp.exists() or stamp.read_text() != digest:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        for entry in stamp.parent.iterdir():
            if entry.is_dir() and entry.name != "classes":
                shutil.rmtree(entry, ignore_errors=True)
        stamp.write_text(digest)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Executables of tests that are over take gigabytes: two workers have 8 GB."""
    if nextitem is None or _group(item) == _group(nextitem) or _resident() < 1 << 31:
        return
    import jax

    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def _group(item: pytest.Item) -> object:
    mark = item.get_closest_marker("xdist_group")
    return mark and mark.args


def _resident() -> int:
    """Bytes of memory; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


@pytest.fixture(scope="session")
def scale() -> float:
    """How much of every random campaign to run: TOKTIER_JAX_TEST_SCALE, by default 1."""
    return float(os.environ.get("TOKTIER_JAX_TEST_SCALE", "1"))
