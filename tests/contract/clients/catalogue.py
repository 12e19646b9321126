"""The list of driven clients with the facts of their folders. Standard library only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEDIA = "-media"
FEATURE = re.compile(r'\bfeature\(\s*"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Client:
    """A published client.

    `name` is that of the environment, `package` that of the registry; `pins` is a file of `folder` with exact versions.
    `needs_agent_model`: it needs a model with a long context that calls tools by itself (agent_model.py).
    `sends_media`: its script sends images, files and sound to a model that sees; it has the environment of another
    client with the same folder. `rights`: those of its key beside inference.
    """

    name: str
    package: str
    folder: Path
    pins: str = "requirements.txt"
    needs_agent_model: bool = False
    sends_media: bool = False
    rights: tuple[str, ...] = ()

    @property
    def is_node(self) -> bool:
        return self.pins == "package.json"

    @property
    def registry(self) -> str:
        return "npm" if self.is_node else "PyPI"

    @property
    def script(self) -> Path:
        name = "media" if self.sends_media else "script"
        return self.folder / f"{name}.{'mjs' if self.is_node else 'py'}"

    @property
    def environment(self) -> str:
        """The name of the environment that it runs in."""
        return self.name.removesuffix(MEDIA) if self.sends_media else self.name

    @property
    def version(self) -> str:
        text = (self.folder / self.pins).read_text()
        if self.is_node:
            return json.loads(text)["dependencies"][self.package]
        (version,) = re.findall(rf"^{re.escape(self.package)}(?:\[\w+\])?==(\S+)$", text, re.MULTILINE)
        return version

    @property
    def features(self) -> list[str]:
        """In the order of the script, which names each in a call of `feature`."""
        return FEATURE.findall(self.script.read_text())


CLIENTS = (
    Client("openai-python", "openai", HERE / "openai-python"),
    Client("openai-node", "openai", HERE / "openai-node", "package.json"),
    Client("tzafon-2.44.1", "tzafon", HERE / "tzafon", "requirements-2.44.1.txt"),
    Client("tzafon-2.28.0", "tzafon", HERE / "tzafon", "requirements-2.28.0.txt"),
    Client("scale-gp-0.1.0a58", "scale-gp", HERE / "scale-gp", "requirements-0.1.0a58.txt"),
    Client("scale-gp-0.1.0a62", "scale-gp", HERE / "scale-gp", "requirements-0.1.0a62.txt"),
    Client("scale-gp-beta", "scale-gp-beta", HERE / "scale-gp-beta"),
    Client("anthropic", "anthropic", HERE / "anthropic"),
    Client("ollama-python", "ollama", HERE / "ollama-python", rights=("models_manage",)),
    Client("ollama-node", "ollama", HERE / "ollama-node", "package.json", rights=("models_manage",)),
    Client("langchain-openai", "langchain-openai", HERE / "langchain-openai"),
    Client("litellm", "litellm", HERE / "litellm"),
    Client("pydantic-ai", "pydantic-ai-slim", HERE / "pydantic-ai"),
    Client("instructor", "instructor", HERE / "instructor"),
    Client("llm", "llm", HERE / "llm"),
    Client("ai-sdk", "ai", HERE / "ai-sdk", "package.json"),
    Client("openai-python-media", "openai", HERE / "openai-python", sends_media=True),
    Client("anthropic-media", "anthropic", HERE / "anthropic", sends_media=True),
    Client("ai-sdk-media", "ai", HERE / "ai-sdk", "package.json", sends_media=True),
    Client("openai-unforced", "openai", HERE / "openai-unforced", "package.json", needs_agent_model=True),
    Client("codex", "@openai/codex", HERE / "codex", "package.json", needs_agent_model=True),
    Client("claude-code", "@anthropic-ai/claude-code", HERE / "claude-code", "package.json", needs_agent_model=True),
)
