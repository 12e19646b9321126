"""A served Lightcone with small random models that see, watch and hear, and files to send to them.

Their answers mean nothing, and are the same for the same input.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.engine.inputs.pdf_writing import pdf, scan
from tests.engine.seeing_folders import encoded, image_of, write_seeing
from tests.engine.speech_folders import tones, wav, write_whisper
from tests.served import ROOT, ServedLightcone

HEARING = "whisper"
"""The model that writes down speech."""
SOUND_S = 2


@contextmanager
def served(folder: Path, *families: str, hearing: str = "", **environment: str) -> Iterator[ServedLightcone]:
    """Serve models of these families under their names, the first by default, and one that writes down speech.

    `hearing`: the model whose sound in messages it writes down.
    """
    for name in (*families, HEARING):
        (folder / name).mkdir()
        if name == HEARING:
            write_whisper(folder / name)
        else:
            write_seeing(folder / name, name)
    made = ServedLightcone(folder / "served", model=families[0])
    made.environment = {
        "LIGHTCONE_MODEL": str(folder / families[0]),
        "LIGHTCONE_MODEL_NAME": families[0],
        "LIGHTCONE_WEIGHTS": "float32",
        **environment,
    }
    with made.running():
        for name in (*families[1:], HEARING):
            _add(made, name, folder / name)
        if hearing:
            _let_hear(made, hearing)
        yield made


def files_write(folder: Path) -> None:
    """Write two images, a page of text, one that is a picture, and a sound."""
    for number, name in enumerate(("image.png", "other.png"), 1):
        (folder / name).write_bytes(base64.b64decode(encoded(image_of(40, 30, number))))
    (folder / "page.pdf").write_bytes(pdf("Bring milk."))
    (folder / "scan.pdf").write_bytes(scan(("", "ff0000 00ff00 0000ff 000000")))
    (folder / "sound.wav").write_bytes(wav(tones(SOUND_S, 1)))


def _add(made: ServedLightcone, name: str, path: Path) -> None:
    """Enter a model, and wait until its kind is known."""
    environment = made.environment_of_all | {"DJANGO_SETTINGS_MODULE": "lightcone_site.settings"}
    command = [sys.executable, "manage.py", "model_add", name, str(path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=120, capture_output=True)

    def is_known() -> bool:
        models = json.loads(made.get("/v1/models")[2])["data"]
        return any(model["id"] == name and model["kind"] for model in models)

    made.wait_for(is_known, timeout_s=120, what=f"the kind of {name} to be known")


def _let_hear(made: ServedLightcone, name: str) -> None:
    headers = {"Authorization": f"Bearer {made.make_key(rights=['inference', 'models_manage'])}"}
    change = {"transcriber": HEARING}
    httpx.patch(f"{made.base_url}/v1/admin/models/{name}", json=change, headers=headers).raise_for_status()
