"""`manage.py serve` as a whole, on a truncated model file: everything but the engine runs and starts fast."""

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin

import pytest

from chat.catalog.model_choice import model_choice
from chat.playground.modules import DYNAMIC_IMPORT, imported
from tests.served import ROOT, ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def cut_model(tmp_path_factory) -> Path:
    """Return the default model without its last half."""
    whole = model_choice(path="", name="").path
    path = tmp_path_factory.mktemp("models") / "cut.gguf"
    with whole.open("rb") as file:
        path.write_bytes(file.read(whole.stat().st_size // 2))
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory, cut_model):
    """Serve one installation for tests that only read it, or disturb it and wait for its recovery."""
    served = ServedLightcone(tmp_path_factory.mktemp("serving"), {"LIGHTCONE_MODEL": str(cut_model)}, model="cut")
    open_to_all(served.data_dir)
    served.start()
    try:
        served.wait_for(
            lambda: "!!!  cut: " in served.console(), timeout_s=120, what="the console to name the unreadable model"
        )
        yield served
    finally:
        served.stop()
    assert served.processes_left() == []


def open_to_all(data_dir: Path) -> None:
    """Leave a data directory as earlier versions did."""
    (data_dir / "logs").mkdir(parents=True)
    for path in (data_dir / "lightcone.sqlite3", data_dir / "logs" / "web.log"):
        path.touch()
        path.chmod(0o644)
    for folder in (data_dir, data_dir / "logs"):
        folder.chmod(0o755)


def pid_of(served: ServedLightcone, words: str) -> int | None:
    return next((pid for pid, command in served.processes_left() if words in command), None)


def manage(served: ServedLightcone, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("LIGHTCONE_", "DJANGO_", "DATABASE_"))
    }
    place = {"LIGHTCONE_DATA_DIR": str(served.data_dir), "LIGHTCONE_PORT": str(served.port)}
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(
        command, cwd=ROOT, env=inherited | place | environment, capture_output=True, text=True, timeout=60, check=False
    )


def static_names(page: str, ending: str) -> list[str]:
    return re.findall(rf'"(/static/[^"]+\.{ending})"', page)


def fetched(served: ServedLightcone, path: str, accepted: str = "gzip") -> tuple[int, dict[str, str], bytes]:
    """Return status, headers (lower-case names) and body as sent to a browser."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)) as connection:
        connection.request("GET", path, headers={"Accept-Encoding": accepted})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_a_truncated_model_is_named_with_the_reason_and_the_web_answers_503(served, cut_model):
    line = next(line for line in served.console().splitlines() if "!!!  cut: " in line)
    assert str(cut_model) in line
    assert "truncated" in line
    assert served.get("/health/live")[0] == 200
    status, headers, _ = served.get("/health/ready")
    assert (status, "retry-after" in headers) == (503, False)
    status, headers, body = served.post(
        "/v1/chat/completions", {"model": "cut", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert (status, headers["x-should-retry"], "retry-after" in headers) == (503, "false", False)
    assert json.loads(body)["error"]["code"] == "model_load_failed"


def test_nothing_of_a_served_installation_is_open_to_group_or_others(served):
    """Any local user could read hashes of passwords, sessions and stored prompts."""
    style = static_names(served.get("/sign-in")[2], "css")[0]
    assert served.get(style)[0] == 200
    places = [served.data_dir, *served.data_dir.rglob("*")]
    assert {"lightcone.sqlite3-wal", "web.log", "valkey.conf", "valkey.sock", Path(style).name, "serve.lock"} <= {
        path.name for path in places
    }
    assert [
        f"{path.lstat().st_mode:o} {path}" for path in places if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ] == []


def test_static_files_have_hashed_names_are_compressed_and_stay_in_caches(served):
    files = {path.relative_to(served.data_dir) for path in (served.data_dir / "static" / "chat").rglob("*.js")}
    named = re.compile(r"[./\w-]+\.[0-9a-f]{12}\.js")
    assert [path for path in files if not named.fullmatch(str(path))] == []
    (main,) = (path for path in files if path.match("playground/app/main.*.js"))
    status, headers, body = fetched(served, f"/{main}")
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert headers["content-type"].startswith("text/javascript")
    assert "immutable" in headers["cache-control"]
    assert int(re.search(r"max-age=(\d+)", headers["cache-control"])[1]) >= 365 * 24 * 3600
    text = gzip.decompress(body).decode()
    assert fetched(served, f"/{main}", "identity")[2].decode() == text
    imports = imported(text) + imported(text, DYNAMIC_IMPORT)
    assert len(imports) > 3
    for url in imports:
        assert named.fullmatch(url)
        assert fetched(served, urljoin(f"/{main}", url))[0] == 200


def test_pages_are_compressed_and_answers_of_the_api_are_not(served):
    for path in ("/sign-in", "/docs"):
        status, headers, body = fetched(served, path)
        assert (status, headers["content-encoding"]) == (200, "gzip")
        page = gzip.decompress(body).decode()
        for name in [name for ending in ("css", "js", "svg") for name in static_names(page, ending)]:
            assert re.search(r"\.[0-9a-f]{12}\.", name)
            assert fetched(served, name)[0] == 200
    assert "content-encoding" not in fetched(served, "/health/live")[1]


def test_the_console_shows_addresses_and_no_configured_secret(served):
    served.wait_for(lambda: "Ctrl-C stops everything" in served.console(), timeout_s=10, what="the addresses")
    console = served.console()
    for path in ("/\n", "/admin/", "/v1", "/docs"):
        assert f"{served.base_url}{path}" in console
    assert served.api_key not in console
    assert served.admin_password not in console


def test_a_second_supervisor_on_the_same_directory_is_refused(served):
    answer = manage(served, "serve")
    assert answer.returncode == 2
    assert f"already served by process {served.pid}" in answer.stderr


@pytest.mark.parametrize("words", ["lightcone_site.web", "valkey-server", "maintenance@"])
def test_a_killed_component_is_restarted(served, words):
    killed = pid_of(served, words)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    served.wait_for(
        lambda: pid_of(served, words) not in (None, killed), timeout_s=60, what=f"{words} to be started again"
    )
    served.wait_for(lambda: served.get("/health/live")[0] == 200, timeout_s=60, what="the web to answer")
    assert "killed by SIGKILL; starting again in" in served.console()


def test_secrets_of_the_start_do_not_reach_the_children(served):
    for pid, command in served.processes_left():
        if pid != served.pid:
            assert served.api_key.encode() not in Path(f"/proc/{pid}/environ").read_bytes(), command


def test_the_doctor_finds_no_problem_in_a_served_installation(served):
    answer = manage(served, "doctor")
    assert answer.returncode == 0, answer.stdout
    assert "already served by process" in answer.stdout


def test_the_doctor_names_problems_with_their_remedies(served, tmp_path):
    (tmp_path / "letter.gguf").write_text("Dear reader, this is not a model at all.")
    answer = manage(
        served, "doctor", LIGHTCONE_MODEL=str(tmp_path / "letter.gguf"), LIGHTCONE_REDIS_URL="redis://127.0.0.1:1/0"
    )
    assert answer.returncode == 1
    assert "not a GGUF file" in answer.stdout
    assert "LIGHTCONE_REDIS_URL does not answer" in answer.stdout
    assert answer.stdout.count("remedy:") == 2


def test_a_malformed_key_is_refused_before_anything_starts(tmp_path):
    fresh = ServedLightcone(tmp_path)
    answer = manage(fresh, "serve", LIGHTCONE_API_KEY="lc_mine_1234")
    assert answer.returncode == 2
    assert "LIGHTCONE_API_KEY cannot be used: an API key reads lc_" in answer.stderr
    assert "lc_mine_1234" not in answer.stdout + answer.stderr
    assert not (fresh.data_dir / "valkey").exists()
    assert fresh.processes_left() == []


def test_a_used_port_is_refused_by_number(served, tmp_path):
    answer = manage(ServedLightcone(tmp_path, port=served.port), "serve")
    assert answer.returncode == 2
    assert f"127.0.0.1:{served.port} cannot be listened on" in answer.stderr


def test_an_invalid_value_is_reported_in_one_line_with_its_name(served):
    answer = manage(served, "serve", LIGHTCONE_MAX_N="many")
    assert answer.returncode != 0
    assert answer.stderr.strip() == "Lightcone cannot start: LIGHTCONE_MAX_N must be a whole number, got 'many'"


def test_a_killed_supervisor_leaves_no_process_and_does_not_stop_the_next_start(tmp_path, cut_model):
    """One test for both, as they share a slow start: kill -9, check, start again over its lock and socket."""
    served = ServedLightcone(tmp_path, {"LIGHTCONE_MODEL": str(cut_model)}, model="cut")
    served.start()
    served.wait_for(lambda: served.get("/health/live")[0] == 200, timeout_s=120, what="the web to answer")
    assert served.process is not None
    served.process.kill()
    served.process.wait()
    (served.data_dir / "run" / "valkey.sock").touch()
    served.wait_for(
        lambda: served.processes_left() == [], timeout_s=30, what="the children to follow", is_running=False
    )
    served.start()
    try:
        served.wait_for(
            lambda: served.get("/v1/models")[0] == 200, timeout_s=120, what="the key of the first start to open again"
        )
    finally:
        code = served.stop()
    assert code == 0
    assert served.processes_left() == []
