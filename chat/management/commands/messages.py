"""`manage.py messages`: collect the texts of pages into locale/*/LC_MESSAGES, keep their translations, and compile.

For those who change texts; it does what Django's makemessages and compilemessages do, without GNU gettext.
"""

from __future__ import annotations

import ast
import json
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chat.playground.form import help_texts
from chat.playground.strings import BETWEEN_FORMS, catalogue, catalogue_read

TEMPLATE_TEXT = re.compile(r'{%\s*translate\s+("(?:[^"\\]|\\.)*")')
TEMPLATE_BLOCK = re.compile(r"{%\s*blocktranslate\b[^%]*%}(.*?){%\s*endblocktranslate\s*%}", re.DOTALL)
TEMPLATE_PLURAL = re.compile(r"{%\s*plural\s*%}")
VARIABLE = re.compile(r"{{\s*(\w+)\s*}}")
SCRIPT_STRING = r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
SCRIPT_TEXT = re.compile(rf"(?<![\w.$])(?:t|mark)\(\s*{SCRIPT_STRING}")
SCRIPT_PLURAL = re.compile(rf"(?<![\w.$])plural\([^\"'`;]*,\s*{SCRIPT_STRING},\s*{SCRIPT_STRING}")
FUNCTIONS = ("gettext", "gettext_lazy", "_")
PLURALS = ("ngettext", "ngettext_lazy")
MO_MAGIC = 0x950412DE
HEADER = (
    "Language: {language}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
    "Plural-Forms: nplurals=2; plural=(n != 1);\n"
)
"""The two forms are those of English and German."""


class Command(BaseCommand):
    help = "Collect the texts of pages into the catalogues below locale/, and compile them."

    def handle(self, *args: Any, **options: Any) -> None:
        languages = [code for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE]
        for language in languages:
            for domain, texts in collected().items():
                path = catalogue(language, domain)
                translations = merged(path, texts, language)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(catalogue_text(translations), encoding="utf-8")
                if domain == "django":
                    path.with_suffix(".mo").write_bytes(compiled(translations))
                missing = [text.split(BETWEEN_FORMS)[0] for text in texts if not is_whole(translations[text], text)]
                if missing:
                    raise CommandError(f"{path} has no translation of: " + "; ".join(missing))


def collected() -> dict[str, list[str]]:
    """Return the English texts by domain, sorted. One with a form for one and a form for more has both."""
    base = Path(settings.BASE_DIR)
    templates = (path for ending in ("html", "txt") for path in (base / "templates").rglob(f"*.{ending}"))
    python = (path for room in ("chat", "lightcone_site") for path in (base / room).rglob("*.py"))
    scripts = (base / "chat" / "static" / "chat" / "playground" / "app").rglob("*.js")
    of_templates = (text for path in templates for text in template_texts(path.read_text(encoding="utf-8")))
    of_pages = {
        *of_templates,
        *help_texts(),
        *(text for path in python for text in python_texts(path.read_text(encoding="utf-8"))),
    }
    of_scripts = {text for path in scripts for text in script_texts(path.read_text(encoding="utf-8"))}
    return {"django": sorted(of_pages), "djangojs": sorted(of_scripts)}


def template_texts(source: str) -> list[str]:
    """Return the texts of a template. Variables within a text are written as Django asks for them, `%(name)s`."""
    blocks = (TEMPLATE_PLURAL.sub(BETWEEN_FORMS, text).replace("%", "%%") for text in TEMPLATE_BLOCK.findall(source))
    texts = (VARIABLE.sub(r"%(\1)s", text) for text in blocks)
    return [*(json.loads(text) for text in TEMPLATE_TEXT.findall(source)), *texts]


def is_whole(translation: str, english: str) -> bool:
    """Return True if a translation has each form of the English text."""
    forms = translation.split(BETWEEN_FORMS)
    return all(forms) and len(forms) == len(english.split(BETWEEN_FORMS))


def script_texts(source: str) -> list[str]:
    """Return the texts that a script gives to t(), mark() or plural()."""
    both = (text for pair in SCRIPT_PLURAL.findall(source) for text in pair)
    return [ast.literal_eval(text) for text in (*SCRIPT_TEXT.findall(source), *both)]


def merged(path: Path, texts: Iterable[str], language: str) -> dict[str, str]:
    """Return the header and these texts with their translations so far."""
    known = catalogue_read(path)
    return {"": HEADER.format(language=language)} | {text: known.get(text, "") for text in texts}


def catalogue_text(translations: dict[str, str]) -> str:
    """Return the text of a .po file."""
    return "\n".join(_entry(english, text) for english, text in translations.items())


def _entry(english: str, text: str) -> str:
    if BETWEEN_FORMS not in english:
        return f"msgid {_quote(english)}\nmsgstr {_quote(text)}\n"
    one, more = english.split(BETWEEN_FORMS)
    forms = text.split(BETWEEN_FORMS) if text else ["", ""]
    lines = (f"msgstr[{number}] {_quote(form)}\n" for number, form in enumerate(forms))
    return f"msgid {_quote(one)}\nmsgid_plural {_quote(more)}\n" + "".join(lines)


def compiled(translations: dict[str, str]) -> bytes:
    """Return the .mo file of these translations (https://www.gnu.org/software/gettext/manual/html_node/MO-Files.html)."""
    whole = ((english, text) for english, text in translations.items() if is_whole(text, english))
    pairs = sorted((english.encode(), text.encode()) for english, text in whole)
    offset = 28 + 16 * len(pairs)
    tables: list[bytes] = []
    data = b""
    for column in zip(*pairs, strict=True):
        for text in column:
            tables.append(struct.pack("<II", len(text), offset + len(data)))
            data += text + b"\0"
    head = struct.pack("<7I", MO_MAGIC, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, offset)
    return head + b"".join(tables) + data


def python_texts(source: str) -> list[str]:
    """Return the texts that Python gives to gettext and ngettext."""
    if "gettext" not in source:
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    named = [(call.func.id, call.args) for call in calls if isinstance(call.func, ast.Name)]
    forms = [given[:1] for name, given in named if name in FUNCTIONS]
    forms += [given[:2] for name, given in named if name in PLURALS]
    values = [[form.value for form in given if isinstance(form, ast.Constant)] for given in forms]
    texts = [[str(value) for value in found if isinstance(value, str)] for found in values]
    return [BETWEEN_FORMS.join(found) for given, found in zip(forms, texts, strict=True) if len(found) == len(given)]


def _quote(text: str) -> str:
    """Quote a text for a .po file; one with line breaks begins with an empty line."""
    lines = text.splitlines(keepends=True)
    quoted = [json.dumps(line, ensure_ascii=False) for line in lines] or ['""']
    return "\n".join(quoted if len(quoted) == 1 else ['""', *quoted])
