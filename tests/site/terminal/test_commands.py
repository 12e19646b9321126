"""`manage.py chat` and `manage.py run` in processes of their own, against a served Lightcone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.served import ROOT, ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]


def manage(served: ServedLightcone, *arguments: str, typed: str = "", key: str | None = None) -> tuple[int, str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("LIGHTCONE_", "DJANGO_"))}
    settings = {"LIGHTCONE_DATA_DIR": str(served.data_dir), "LIGHTCONE_PORT": str(served.port)}
    environment = kept | settings | ({"LIGHTCONE_API_KEY": key} if key else {})
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, input=typed, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


FIXED = ["--set", "temperature=0", "--set", "max_tokens=8"]


def test_one_answer_for_scripts_with_what_is_piped_in(lightcone: ServedLightcone) -> None:
    code, said, _ = manage(lightcone, "run", lightcone.model, "Repeat:", *FIXED, typed="red green blue\n")
    assert (code, said.endswith("\n"), bool(said.strip())) == (0, True, True)
    again = manage(lightcone, "run", lightcone.model, "Repeat:\n\nred green blue", *FIXED, key=lightcone.api_key)
    assert again[:2] == (0, said)


def test_a_conversation_is_typed_line_by_line(lightcone: ServedLightcone) -> None:
    lines = "/model\n/set temperature 0\n/set max_tokens 6\nSay hello.\n/set temperature 9\nAgain.\n/bye\n"
    code, said, _ = manage(lightcone, "chat", typed=lines)
    assert code == 0
    assert f"* {lightcone.model}" in said
    assert "(cut at max_tokens" in said
    assert "temperature" in said.splitlines()[-1]  # the refusal names the field


def test_all_commands_share_one_key(lightcone: ServedLightcone) -> None:
    for _ in range(2):
        manage(lightcone, "run", lightcone.model, "hi", *FIXED)
    assert manage(lightcone, "api_key", "list")[1].count("terminal") == 1


def test_a_reader_that_leaves_ends_a_command_without_a_word(lightcone: ServedLightcone) -> None:
    script = f"{sys.executable} manage.py run {lightcone.model} 'Count.' --set max_tokens=200 | head -c 1"
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("LIGHTCONE_", "DJANGO_"))}
    settings = {"LIGHTCONE_DATA_DIR": str(lightcone.data_dir), "LIGHTCONE_PORT": str(lightcone.port)}
    done = subprocess.run(
        ["sh", "-c", script], cwd=ROOT, env=kept | settings, capture_output=True, text=True, timeout=120
    )
    assert (len(done.stdout), done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nobody", "hi"], "The model 'nobody' does not exist"),
        (["run", "SmolLM2-135M-Instruct"], "there is no prompt: write it behind the model, or pipe it in"),
        (["run", "SmolLM2-135M-Instruct", "hi", "--set", "x"], "--set wants NAME=VALUE, got 'x'"),
        (["run", "x", "hi", "--url", "http://127.0.0.1:9", "--key", "k"], "http://127.0.0.1:9 does not answer"),
        (["chat", "--url", "http://127.0.0.1:9"], "another server wants a key of its own: give --key"),
    ],
)
def test_what_cannot_be_done_is_said(lightcone: ServedLightcone, arguments: list[str], words: str) -> None:
    code, _, problem = manage(lightcone, *arguments)
    assert code == 1
    assert words in problem
    assert "Traceback" not in problem
