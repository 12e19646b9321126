"""Text in thirty-two scripts, with what text rules trip over: digits, signs, runs of spaces, contractions, marks."""

import random
import unicodedata
from functools import cache

SCRIPTS = {
    "Latin": (0x41, 0x24F),
    "Greek": (0x386, 0x3CE),
    "Cyrillic": (0x400, 0x45F),
    "Armenian": (0x531, 0x587),
    "Hebrew": (0x5B0, 0x5EA),
    "Arabic": (0x621, 0x669),
    "Syriac": (0x710, 0x74A),
    "Thaana": (0x780, 0x7B1),
    "Nko": (0x7C0, 0x7F5),
    "Devanagari": (0x900, 0x96F),
    "Bengali": (0x981, 0x9EF),
    "Gurmukhi": (0xA01, 0xA75),
    "Gujarati": (0xA81, 0xAEF),
    "Odia": (0xB01, 0xB6F),
    "Tamil": (0xB82, 0xBEF),
    "Telugu": (0xC01, 0xC6F),
    "Kannada": (0xC81, 0xCEF),
    "Malayalam": (0xD01, 0xD6F),
    "Sinhala": (0xD81, 0xDEF),
    "Thai": (0xE01, 0xE5B),
    "Lao": (0xE81, 0xEDF),
    "Tibetan": (0xF00, 0xFBC),
    "Myanmar": (0x1000, 0x1059),
    "Georgian": (0x10A0, 0x10FF),
    "Jamo": (0x1100, 0x11FF),
    "Ethiopic": (0x1200, 0x137C),
    "Cherokee": (0x13A0, 0x13FD),
    "Khmer": (0x1780, 0x17E9),
    "Mongolian": (0x1810, 0x1878),
    "Kana": (0x3041, 0x30FF),
    "Han": (0x4E00, 0x4E7F),
    "Hangul": (0xAC00, 0xAC7F),
}
PLAIN = [
    "the",
    "The",
    "THE",
    "we'll",
    "DON'T",
    "it's",
    "'S",
    "camelCase",
    "a_b",
    "x1",
    "12",
    "345",
    "1234567",
    "3.14",
    "½",
]
BETWEEN = [
    " ",
    " ",
    " ",
    " ",
    "  ",
    "    ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n ",
    "",
    "",
    ", ",
    ".",
    "...",
    "!?",
    " - ",
    "/",
    "('",
    "\u3002",
]
ODD = [
    "e\u0301",
    "\u212b",
    "\ufb01",
    "\u00a0",
    "\u200d",
    "\U0001f600",
    "\U0001f468\u200d\U0001f469",
    "\u2581",
    "\x00",
    "$%^&",
    "```",
    "\ud55c",
]


@cache
def words() -> list[str]:
    draw = random.Random(0)
    found = list(PLAIN)
    for first, last in SCRIPTS.values():
        letters = [chr(code) for code in range(first, last + 1) if unicodedata.category(chr(code)) != "Cn"]
        found += ["".join(draw.choices(letters, k=draw.randint(1, 6))) for _ in range(12)]
    return found


@cache
def texts(count: int, seed: int = 1) -> tuple[str, ...]:
    """Return short texts, the same for the same arguments."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        parts = draw.choices(words(), k=draw.randint(1, 7))
        if draw.random() < 0.3:
            parts[draw.randrange(len(parts))] = draw.choice(ODD)
        made.append("".join(part + draw.choice(BETWEEN) for part in parts))
    return tuple(made)
