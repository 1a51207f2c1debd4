"""Other spellings of a path, and where they lead on a server that reads paths more leniently than this proxy. Pure.

Servlet containers cut a segment at `;`, Windows drops dots and blanks at its end, many frameworks match without case or
ignore empty segments, and some decode a path twice. `read_strictly` folds all of that away: two paths that are the
same may then be one path to a server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol
from urllib.parse import unquote

from proxy.core.model.value_class import value_class

# How often an escape inside an escape is undone: no server reads `%2525252e`, escaped four times, as a dot.
_DECODINGS: Final = 4
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
    """Whether a decoded segment could be more than one segment, or another one, for a lenient server. Not `judged`:
    slashes escaped twice and path parameters are the business of the server behind."""
    if not any(character in value for character in ".%;/\\"):
        return False
    plain = decode_escapes(value)
    if judged and ("/" in plain or "\\" in plain or plain.startswith(";")):
        return True
    parts = plain.replace("\\", "/").replace("/", ";").split(";")
    return any(part.strip(_BLANKS) in (".", "..") for part in parts)


def find_leaving(params: Mapping[str, str], exempt: Collection[str], *, judged: bool) -> str:
    """The name of a path parameter whose value leaves its segment, '' where none does. `exempt`: the names of those in
    which `;` has a meaning."""
    found = (name for name, value in params.items() if name not in exempt and leaves_segment(value, judged=judged))
    return next(found, "")


def read_strictly(segments: Iterable[str]) -> tuple[str, ...]:
    """Decoded segments as the most lenient server reads them; parameters (`{name}`) stay as they are."""
    folded = (_fold_segment(part) for segment in segments for part in _parts(segment))
    return tuple(segment for segment in folded if segment)


def _parts(segment: str) -> list[str]:
    return [segment] if is_parameter(segment) else decode_escapes(segment).replace("\\", "/").split("/")


def _fold_segment(segment: str) -> str:
    if is_parameter(segment):
        return segment
    return segment.partition(";")[0].strip(_BLANKS).rstrip("." + _BLANKS).casefold()


def is_parameter(segment: str) -> bool:
    """Whether a segment of a route's path takes any text."""
    return segment.startswith("{") and segment.endswith("}")


def may_be_same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two folded paths, with parameters or without, can name the same place."""
    return len(one) == len(other) and all(
        left == right or is_parameter(left) or is_parameter(right) for left, right in zip(one, other, strict=True)
    )


@value_class
class JudgedPath:
    """A route that judges: its path, where its calls go, and its methods."""

    path: str
    upstream: str
    upstream_path: str
    methods: frozenset[str]


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
    """The paths where calls are judged, found by any spelling. False where there are none."""

    def __init__(self, paths: Iterable[JudgedPath]) -> None:
        # By upstream and number of segments: so a request is compared with few of them.
        self._known: dict[tuple[str, int], list[tuple[tuple[str, ...], tuple[str, ...], JudgedPath]]] = {}
        for judged in paths:
            path, target = _template(judged.path), _template(judged.upstream_path)
            self._known.setdefault((judged.upstream, len(path)), []).append((path, target, judged))

    @classmethod
    def of(cls, routes: Iterable[_AnyRoute]) -> JudgedPaths:
        """Those of the routes that judge and send on."""
        return cls(
            JudgedPath(route.path, route.upstream, route.upstream_path, frozenset(route.methods))
            for route in routes
            if route.kind == "call"
        )

    def __bool__(self) -> bool:
        return bool(self._known)

    def find_reached(self, method: str, segments: tuple[str, ...], upstream: str, target: str) -> str:
        """The judged path that another spelling of it (decoded `segments`, sent to `target`) may lead to; '' for none.
        A method that is judged at no such path leads to none."""
        asked = read_strictly(segments)
        sent: tuple[str, ...] | None = None
        for path, goal, judged in self._known.get((upstream, len(asked)), ()):
            if method in judged.methods and may_be_same(path, asked):
                sent = read_strictly(target.split("/")) if sent is None else sent
                if may_be_same(goal, sent):
                    return judged.path
        return ""

    def within_reach(self, path: str, upstream: str, upstream_path: str, methods: frozenset[str]) -> list[str]:
        """The judged paths that a template can reach by another spelling."""
        asked, sent = _template(path), _template(upstream_path)
        found = self._known.get((upstream, len(asked)), ())
        return [
            judged.path
            for known, goal, judged in found
            if methods & judged.methods and may_be_same(known, asked) and may_be_same(goal, sent)
        ]


def _template(path: str) -> tuple[str, ...]:
    return read_strictly(path.split("/"))
