"""Questions to the engine in a process of its own: models' files are not trusted, and torch is large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE_CHECK_S = 600


def engine_check(
    module: str, argument: str, what: str, timeout_s: float = ENGINE_CHECK_S, *further: str
) -> tuple[bool, str]:
    """Let a module of the engine open `what` in its own process. Return (True, last line) or (False, the reason).

    `further`: more arguments of the module.
    """
    command = [sys.executable, "-m", module, argument, *further]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return False, f"{what} did not answer within {timeout_s} s"
    lines = (answer.stdout.strip() or answer.stderr.strip()).splitlines()
    if answer.returncode == 0:
        return True, lines[-1] if lines else ""
    return False, lines[-1] if lines else f"opening {what} ended the process that tried (code {answer.returncode})"
