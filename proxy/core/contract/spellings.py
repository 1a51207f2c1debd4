"""Other spellings of a path, and where they lead on a server that reads paths more leniently than this proxy. Pure.

Servlet containers cut a segment at `;`, Windows drops dots and blanks at its end and reads `t::$DATA` as `t`. Many
frameworks match without case or ignore empty segments, some decode a path twice, and some take the end of a path for
the format of the answer (`/t.json`). `read_strictly` folds all of that away: two paths that are the same may then be
one path to a server.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Final, Protocol
from urllib.parse import unquote

from proxy.core.model.value_class import value_class

# How often an escape inside an escape is undone: no server reads `%2525252e`, escaped four times, as a dot.
_DECODINGS: Final = 4
# The places at which a server may end a segment: a path parameter, an escaped `?` or `#`, the name of a stream (NTFS).
_END: Final = re.compile(r"[;?#]|::")
# A format at the end of a judged path: Rails, Spring and others reach the same place without it and with any other.
_FORMAT: Final = re.compile(r"(?<=.)\.(?:json|xml|html?|te?xt|csv|ya?ml|js|rss|atom)\Z")
_BLANKS: Final = "".join(map(chr, (*range(33), 127, 0xA0, 0x200B, 0xFEFF)))


@value_class
class Unclear:
    """A path that this proxy and the server behind it may read differently. `message` says how, and what to do."""

    message: str

    @classmethod
    def parameter(cls, name: str) -> Unclear:
        """A parameter's value would leave its segment."""
        return cls(
            f"The path parameter '{name}' cannot hold this value: some servers would read another path there. Send a "
            "value without slashes, without ';', and without '.' or '..' on its own."
        )

    @classmethod
    def lookalike(cls, path: str) -> Unclear:
        """Another spelling of a judged path."""
        return cls(
            f"Some servers read this path as '{path}', where calls are judged. Send the call there, spelt like that."
        )


def decode_escapes(text: str) -> str:
    """The text with escapes inside escapes undone."""
    for _ in range(_DECODINGS):
        if "%" not in text:
            return text
        text = unquote(text)
    return text


def leaves_segment(value: str, *, judged: bool = True) -> bool:
    """Returns whether a decoded segment could be more than one segment, or another one, for a lenient server. Not
    `judged`: slashes escaped twice and path parameters are the business of the server behind."""
    if not any(character in value for character in ".%;/\\"):
        return False
    plain = decode_escapes(value)
    if judged and ("/" in plain or "\\" in plain or plain.startswith(";")):
        return True
    parts = plain.replace("\\", "/").replace("/", ";").split(";")
    return any(part.strip(_BLANKS) in (".", "..") for part in parts)


def find_leaving(params: Mapping[str, str], exempt: Collection[str], *, judged: bool) -> str:
    """The path parameter whose value leaves its segment, '' for none. In those of `exempt` the `;` has a meaning."""
    found = (name for name, value in params.items() if name not in exempt and leaves_segment(value, judged=judged))
    return next(found, "")


def read_strictly(segments: Iterable[str]) -> tuple[str, ...]:
    """Decoded segments as the most lenient server reads them; parameters (`{name}`) stay as they are."""
    parts: list[str] = []
    for segment in segments:
        parts += [segment] if _is_parameter(segment) else decode_escapes(segment).replace("\\", "/").split("/")
    return tuple(filter(None, (part if _is_parameter(part) else _fold(part) for part in parts)))


def _fold(part: str) -> str:
    return _END.split(part, maxsplit=1)[0].strip(_BLANKS).rstrip("." + _BLANKS).casefold()


def _is_parameter(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}")


def may_reach(path: tuple[str, ...], judged: tuple[str, ...]) -> bool:
    """Returns whether a folded path can name the same place as a judged one, with parameters or without. The path may
    have a format at its end: `t.json` names `t`."""
    if len(path) != len(judged):
        return False
    pairs = list(zip(path, judged, strict=True))
    same = [left == right or _is_parameter(left) or _is_parameter(right) for left, right in pairs]
    return all(same[:-1]) and (not pairs or same[-1] or path[-1].startswith(f"{judged[-1]}."))


def _read_judged(path: str) -> tuple[str, ...]:
    """A judged path without the format at its end."""
    folded = read_strictly(path.split("/"))
    return (*folded[:-1], _FORMAT.sub("", folded[-1])) if folded else ()


class _AnyRoute(Protocol):
    """The part of a route, written or compiled, that this file uses."""

    @property
    def path(self) -> str: ...
    @property
    def upstream(self) -> str: ...
    @property
    def upstream_path(self) -> str: ...
    @property
    def methods(self) -> Iterable[str]: ...
    @property
    def kind(self) -> str: ...


class JudgedPaths:
    """The paths of the routes that judge and send on, found by any spelling. False where there are none."""

    def __init__(self, routes: Iterable[_AnyRoute]) -> None:
        # By upstream and number of segments: so a request is compared with few of them.
        self._known: dict[tuple[str, int], list[tuple[tuple[str, ...], tuple[str, ...], _AnyRoute]]] = {}
        for route in routes:
            if route.kind == "call":
                path, target = _read_judged(route.path), _read_judged(route.upstream_path)
                self._known.setdefault((route.upstream, len(path)), []).append((path, target, route))

    def __bool__(self) -> bool:
        return bool(self._known)

    def list_reached(self, segments: Iterable[str], upstream: str, target: str, methods: Set[str]) -> list[str]:
        """The judged paths that another spelling of them may lead to: decoded `segments`, sent to `target`, or the path
        of a route's template. Methods that are judged at no such path lead to none."""
        requested = read_strictly(segments)
        if not (known := self._known.get((upstream, len(requested)))):
            return []
        sent = read_strictly(target.split("/"))
        return [
            judged.path
            for path, goal, judged in known
            if not methods.isdisjoint(judged.methods) and may_reach(requested, path) and may_reach(sent, goal)
        ]
