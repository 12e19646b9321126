"""A first-time user: start Lightcone, pull a model, chat with it; it is loaded while the question waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chat.catalog.model_choice import model_choice
from tests.browser.conftest import signed_in_page
from tests.chat.model_store.local_hub import LocalHub
from tests.served import ROOT, ServedLightcone

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.live]
NAME = "Smol:Q4_1"


def test_a_pulled_model_is_chatted_with_at_once(chromium, tmp_path: Path) -> None:
    data = model_choice(path="", name="").path.read_bytes()
    with LocalHub({"org/Smol-GGUF": {"Smol-Q4_1.gguf": data, "README.md": b"x"}}).running() as hub:
        served = ServedLightcone(tmp_path, {"HF_ENDPOINT": hub.url})
        with served.running():
            problems: list[str] = []
            command = [sys.executable, "manage.py", "model", "pull", "org/Smol-GGUF"]
            done = subprocess.run(
                command, cwd=ROOT, env=served.environment_of_all, capture_output=True, text=True, timeout=120
            )
            assert f"{NAME} is stored" in done.stdout, done.stderr
            page = signed_in_page(chromium, served, problems)
            page.click("#model")
            page.click(f"[data-model='{NAME}']")
            page.fill("#composer-text", "Say hi")
            page.keyboard.press("Enter")
            page.locator(".waits-for:visible", has_text="model").wait_for()
            page.locator(".message-assistant .message-foot", has_text="tok").wait_for()
            assert page.inner_text(".message-assistant .message-body").strip()
            page.goto("/admin/chat/servedmodel/")
            row = page.locator("#result_list tr", has_text=NAME)
            row.get_by_text("Ready").wait_for()
            assert problems == []
            page.context.close()
