"""Fixtures of all tests: a private Valkey, a served Lightcone, and tests that this machine cannot run.

With LIGHTCONE_TEST_REQUIRE=1 (`.ci/run`) a skipped test fails, except where it needs a GPU, a client for Node.js or
instructions that few processors have.
Properties use the same examples in every run, so that no change is blamed for another's fault;
LIGHTCONE_TEST_EXAMPLES=explore draws new ones, and `few` takes the first quarter of them (`make check`;
tests/examples.py).
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.served import ServedLightcone

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

UNTIMED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow], "print_blob": True}
"""Settings that let no test fail on a busy machine."""
hypothesis.settings.register_profile("same", derandomize=True, **UNTIMED)
hypothesis.settings.register_profile("explore", **UNTIMED)
hypothesis.settings.register_profile("few", derandomize=True, max_examples=25, **UNTIMED)
hypothesis.settings.load_profile(os.environ.get("LIGHTCONE_TEST_EXAMPLES", "same"))

WRITTEN_BY_MIGRATIONS = {"auth_permission", "django_content_type"}
LONGEST_ID = 40
"""Of the bytes among the parameters of a test that its name spells."""
IS_EVERYTHING_REQUIRED = os.environ.get("LIGHTCONE_TEST_REQUIRE") == "1"
NEED_TRITON = [
    "engine/attention/test_chunk_attention.py",
    "engine/attention/test_xformers_paged.py",
    "engine/execution/test_cuda_graphs.py",
    "engine/kernels/cuda",
    "engine/models/test_models_page.py",
    "engine/quantization/test_byte_weight.py",
]
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is installed is taken. The headless one draws no window around a page, which takes longer than it."""
POSTGRES_BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))

if not IS_EVERYTHING_REQUIRED and not (find_spec("triton") and find_spec("xformers")):
    collect_ignore = NEED_TRITON  # both are made for Linux only, and are imported where a CUDA device computes


def _missing_for(marker: str) -> str | None:
    """Return why tests with this marker cannot run here, None if they can. Does not import torch."""
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    has_gpu = not is_hidden and Path("/dev/nvidiactl").exists() and shutil.which("nvidia-smi")
    if marker == "gpu" and not has_gpu:
        return "needs a CUDA device"
    if marker == "interpreted" and has_gpu:
        return "needs a run that sees no CUDA device (CUDA_VISIBLE_DEVICES=)"
    if marker == "browser" and not any(map(shutil.which, CHROMIUMS)):
        return "needs Chromium (apt-get install chromium-headless-shell)"
    if marker == "postgres" and not (POSTGRES_BINARIES or shutil.which("initdb")):
        return "needs PostgreSQL (apt-get install postgresql)"
    return None


if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of torch in several processes wait for each other
if _missing_for("gpu"):
    os.environ["TRITON_INTERPRET"] = (
        "1"  # Triton reads it when it is first imported: its kernels then compute on CPU tensors
    )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a file among the parameters of a test by its parameter: its bytes may differ from process to process."""
    return argname if isinstance(val, bytes) and len(val) > LONGEST_ID else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Freeze imported and collected objects, so that the garbage collector does not scan them during the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


SHARED = ("lightcone", "invariant_lightcone", "default_reference")
"""Fixtures that several files share and that take long to make."""


def _group(item: pytest.Item) -> str:
    """Return the group of tests that one process of pytest-xdist runs, as they share a long fixture or a file's."""
    names = getattr(item, "fixturenames", ())
    return next((fixture for fixture in SHARED if fixture in names), str(item.path))


def pytest_itemcollected(item: pytest.Item) -> None:
    # NOTE: pytest-xdist reads the groups in its own pytest_collection_modifyitems, which runs before ours.
    if not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group(_group(item)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if getattr(config.option, "loadgroup", False) and not all("@" in item.nodeid for item in items):
        raise pytest.UsageError("this pytest-xdist does not group tests under this pytest: servers would start twice")
    # Long tests go first, so that no process is left with one at the end.
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in ("live", "browser", "slow")))
    for marker in ("gpu", "interpreted", "browser", "postgres"):
        reason = _missing_for(marker)
        if reason:
            for item in items:
                if item.get_closest_marker(marker) and not (marker == "interpreted" and item.get_closest_marker("gpu")):
                    item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give every test the same random numbers of torch in every run and order."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    is_skip = report.skipped and not hasattr(report, "wasxfail")
    is_allowed = any(item.get_closest_marker(name) for name in ("gpu", "interpreted", "node", "processor"))
    if IS_EVERYTHING_REQUIRED and is_skip and not is_allowed:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and LIGHTCONE_TEST_REQUIRE=1 allows no skips: {reason}"
    return report


def pytest_unconfigure() -> None:
    from tests.settings import TEST_DIR

    shutil.rmtree(TEST_DIR, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    """Keep rows of migrations when the database is emptied after a test, instead of recreating them."""
    from django.core.management.commands import flush

    def sql_flush(style: Any, connection: BaseDatabaseWrapper, **options: bool) -> list[str]:
        names = connection.introspection.django_table_names(only_existing=True, include_views=False)
        return connection.ops.sql_flush(style, [name for name in names if name not in WRITTEN_BY_MIGRATIONS], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *args, **options: None)
        yield


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    """Return the URL of a real Valkey, private to this test run: that of settings.LIGHTCONE_REDIS_URL."""
    from lightcone_site.serve.child import Child
    from lightcone_site.serve.embedded_valkey import is_answering, valkey_spec
    from tests.settings import TEST_DIR

    data_dir = TEST_DIR / "valkey"
    socket_path = data_dir / "run" / "valkey.sock"
    child = Child(
        valkey_spec(data_dir=data_dir, socket_path=socket_path, log_path=data_dir / "valkey.log", max_bytes=2**30)
    )
    child.start(time.monotonic())
    deadline = time.monotonic() + 20
    while not is_answering(socket_path):
        assert time.monotonic() < deadline, child.last_log_lines()
        time.sleep(0.01)
    yield f"unix://{socket_path}"
    child.kill()


@pytest.fixture(scope="session")
def lightcone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    """`manage.py serve` with the default model, ready; one for the whole run. Tests must leave it as they found it."""
    served = ServedLightcone(tmp_path_factory.mktemp("served"))
    with served.running():
        yield served
    assert served.processes_left() == [], "manage.py serve left processes behind"
