"""Texts that are nearly JSON: what our readers take, and mean, against Python's own reader with every gap closed."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.json.strictreader import LosslessFloat
from proxy.core.model.values import JsonProblem
from tests.attacks import Found

NUMBERS: Final = (
    "0", "-0", "1", "-1", "1.0", "1.50", "1e5", "1E+5", "-0.0", "1e308", "1e309", "-1e400", "1e-400", "01", "+1", ".5",
    "1.", "0x1", "1e", "1_0", "NaN", "Infinity", "9223372036854775808", "18446744073709551616", "1" * 310, "1" * 4301,
    "0.30000000000000004", "5e-324", "1e23", "2.5e-8", "100000000000000000000.0",
)  # fmt: skip
TEXTS: Final = (
    '"a"', r'"\u0061"', r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00\ud83d"', '"é"', '"\U0001f600"', r'"\/"', r'"\x"',
    '"\t"', r'"\n"', r'"\u0000"', '"\x00"', '"\x7f"', '""', '" "', r'"\ufeff"', '"\u2028"', '"[1,2]"', '"\ufdd0"',
)  # fmt: skip
SPACES: Final = ("", "", "", "", " ", "\n", "\t", "\r", "\x0b", "\xa0", "\ufeff", "/**/")


class _RefusedError(ValueError):
    """The oracle takes no such text."""


def attack(seed: int, tries: int) -> Found:
    """Reads `tries` texts twice and compares verdict, meaning and round trip."""
    random, found = Random(seed), Found(tries)
    for _ in range(tries):
        text = _text(random).encode("utf-8", "surrogatepass")
        try:
            wanted: Any = _oracle(text)
        except (ValueError, RecursionError):
            wanted = _RefusedError
        ours = parse(text)
        if isinstance(ours, JsonProblem) != (wanted is _RefusedError):
            found.add("one reader takes it, the other does not", text)
        elif wanted is not _RefusedError:
            found.through += 1
            if not _same(ours, wanted):
                found.add("it means something else", text)
            written = dumps(ours)
            again = parse(written)
            if isinstance(again, JsonProblem) or dumps(again) != written:
                found.add("written and read again it is another value", text)
    return found


def _text(random: Random, depth: int = 0) -> str:
    space = random.choice(SPACES[:8]) if random.random() < 0.99 else random.choice(SPACES)
    kind = random.random()
    if depth > 4 or kind < 0.5:
        made = random.choice((*NUMBERS[:13], *TEXTS[:3], "true", "null")) if random.random() < 0.9 else ""
        return space + (made or random.choice((*NUMBERS, *TEXTS, "True", "tru", "nul", ""))) + space
    count = random.randint(0, 4)
    comma = "," if random.random() < 0.98 else random.choice((";", "", ",,"))
    if kind < 0.75:
        return "[" + comma.join(_text(random, depth + 1) for _ in range(count)) + random.choice(["]"] * 40 + ["", "}"])
    members = (random.choice((*TEXTS[:6], '"b"', '"c"', '"d"')) + ":" + _text(random, depth + 1) for _ in range(count))
    return "{" + comma.join(members) + random.choice(["}"] * 40 + ["", ",}"])


def _oracle(text: bytes) -> Any:
    """The value, numbers as `("n", text)`. Raises ValueError for what two readers could read differently."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise _RefusedError
        return dict(pairs)

    def number(written: str) -> tuple[str, str]:
        whole = written.lstrip("-").isdigit()
        if (whole and len(written.lstrip("-")) > 4300) or (not whole and abs(float(written)) == float("inf")):
            raise _RefusedError
        return "n", written

    def constant(_: str) -> None:
        raise _RefusedError

    if text.startswith(b"\xef\xbb\xbf"):
        raise _RefusedError
    value = json.loads(
        text.decode(), object_pairs_hook=members, parse_float=number, parse_int=number, parse_constant=constant
    )
    json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be written
    return value


def _same(ours: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        if isinstance(ours, bool) or not isinstance(ours, int | float | LosslessFloat):
            return False
        return bool(dumps(ours).decode() == wanted[1])
    if isinstance(wanted, dict):
        return (
            isinstance(ours, dict)
            and list(ours) == list(wanted)
            and all(_same(ours[key], wanted[key]) for key in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(ours, list) and len(ours) == len(wanted) and all(map(_same, ours, wanted))
    return type(ours) is type(wanted) and bool(ours == wanted)
