"""Simon Willison's `llm`, the command line and the library, with a model of extra-openai-models.yaml."""

import json
import os
import subprocess
import sys
from pathlib import Path

from reporting import KEY, MODEL, SCRATCH, URL, feature, run

HOME = Path(SCRATCH) / "llm"
HOME.mkdir(parents=True, exist_ok=True)
os.environ["LLM_USER_PATH"] = str(HOME)
(HOME / "extra-openai-models.yaml").write_text(
    f"""
- model_id: lightcone
  model_name: {MODEL}
  api_base: {URL}/v1
  api_key_name: lightcone
  supports_schema: true
  supports_tools: true
- model_id: lightcone-completion
  model_name: {MODEL}
  api_base: {URL}/v1
  api_key_name: lightcone
  completion: true
"""
)
(HOME / "keys.json").write_text(json.dumps({"lightcone": KEY}))
BRIEF = ("-o", "temperature", "0", "-o", "max_tokens", "8")


def command(*words, status=0):
    done = subprocess.run(
        [str(Path(sys.executable).with_name("llm")), *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


@feature("chat: a prompt, whole")
def _():
    assert command("-m", "lightcone", "Say hello.", "-s", "Be brief.", "--no-stream", *BRIEF).strip()


@feature("chat: the conversation goes on")
def _():
    assert command("-m", "lightcone", "Say hello.", *BRIEF).strip()
    assert command("-c", "And now in French.", *BRIEF).strip()


@feature("stream: a prompt, streamed")
def _():
    assert command("-m", "lightcone", "Say hello.", "--usage", *BRIEF).strip()


@feature("structured: a schema")
def _():
    schema = {
        "type": "object",
        "properties": {"drink": {"enum": ["tea", "coffee"]}},
        "required": ["drink"],
        "additionalProperties": False,
    }
    made = command(
        "-m",
        "lightcone",
        "A drink?",
        "--schema",
        json.dumps(schema),
        "-o",
        "temperature",
        "0",
        "-o",
        "max_tokens",
        "24",
    )
    assert json.loads(made)["drink"] in ("tea", "coffee")


@feature(
    "tools: offered without being forced", note="the test model answers in words, and this client cannot force a call"
)
def _():
    code = 'def weather(city: str) -> str:\n    "The weather of a city."\n    return "sunny"\n'
    assert command("-m", "lightcone", "Say hello.", "--functions", code, *BRIEF).strip()


@feature("completions: a prompt")
def _():
    assert command("-m", "lightcone-completion", "The sky is", *BRIEF).strip()


@feature("async: the library")
async def _():
    import llm

    response = await llm.get_async_model("lightcone").prompt("Say hello.", temperature=0, max_tokens=8)
    assert await response.text()


@feature("errors: the message of the server")
def _():
    assert "temperature" in command("-m", "lightcone", "Say hello.", "-o", "temperature", "9", status=1)


run()
