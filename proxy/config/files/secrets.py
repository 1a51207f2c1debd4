"""Resolves `${ENV}`, `${ENV:-default}`, `${file:/run/secrets/x}` and `$$` in the config's text.

A resolved text is a `Secret`: it prints as it was written, so that no dump, log line or mistake can show it. `reveal`
gives the real text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import is_
from pathlib import Path
from typing import Final

from proxy.config.files.source import describe_failure
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer

_REFERENCE = re.compile(r"\$(?:(\$)|\{([^{}]*)\}|(\{))")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMS: Final = "write ${NAME}, ${NAME:-default} or ${file:/path}; a plain $ before a { is written $$"


class Secret(str):
    """Text with a resolved reference. It prints as it was written in the config."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, text: str, written: str) -> Secret:
        secret = super().__new__(cls, text)
        secret.written = written
        return secret

    def __repr__(self) -> str:
        return f"Secret({self.written!r})"

    def __str__(self) -> str:
        return self.written

    def __format__(self, spec: str) -> str:
        return format(self.written, spec)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return (str, (self.written,))  # a pickle would also expose it

    def reveal(self) -> str:
        """The real text, as a plain string."""
        return str.__str__(self)


def reveal(text: str) -> str:
    """The real text of a `Secret`, or the text itself."""
    return text.reveal() if isinstance(text, Secret) else text


def reveal_all(value: JsonValue) -> JsonValue:
    """The value with each `Secret` replaced by its real text, for consumers that need plain strings."""
    return _replace_secrets(value, Secret.reveal)


def restore_written(value: JsonValue) -> JsonValue:
    """The value with each `Secret` replaced by the text of the config file, for dumps."""
    return _replace_secrets(value, lambda secret: secret.written)


def _replace_secrets(value: JsonValue, choose: Callable[[Secret], str]) -> JsonValue:
    if isinstance(value, dict):
        return keep_same(value, {key: _replace_secrets(item, choose) for key, item in value.items()})
    if isinstance(value, list):
        return keep_same(value, [_replace_secrets(item, choose) for item in value])
    return choose(value) if isinstance(value, Secret) else value


def keep_same(before: JsonValue, after: JsonValue) -> JsonValue:
    """The container itself if its copy has the same members: large parts of a config stay as they were read."""
    old, new = (before.values(), after.values()) if isinstance(before, dict) else (before, after)
    return before if all(map(is_, old, new)) else after


def reveal_again(text: str, folder: Path, environ: Mapping[str, str], read: Callable[[Path], bytes]) -> str:
    """Returns the text of a `Secret`, resolved again from its files; the text as loaded if that fails."""
    if not isinstance(text, Secret):
        return text
    problems: list[Unresolved] = []
    found = Substitution(environ, read, folder).apply(text.written, problems)
    return reveal(found) if found and not problems else text.reveal()


@value_class
class Unresolved:
    """A reference that could not be resolved: its place in the config, why, and what to do.

    `missing`: the reference is valid, but the variable or file that it names does not exist.
    """

    path: Pointer
    message: str
    hint: str
    missing: bool = False


@value_class
class Substitution:
    """Resolves references. `read` gives a file's bytes; `literal` says which places stay as they are (schemas), and
    `may_hold_secret` which places may have the content of a secret file."""

    environ: Mapping[str, str]
    read: Callable[[Path], bytes]
    base: Path
    literal: Callable[[Pointer], bool] = lambda _: False
    may_hold_secret: Callable[[Pointer], bool] = lambda _: True

    def apply(self, value: JsonValue, problems: list[Unresolved], path: Pointer = ()) -> JsonValue:
        """The value with every reference resolved, its parts without one the same; those that cannot be resolved go to
        `problems`."""
        if self.literal(path):
            return value
        if isinstance(value, dict):
            return keep_same(value, {key: self.apply(item, problems, (*path, key)) for key, item in value.items()})
        if isinstance(value, list):
            return keep_same(value, [self.apply(item, problems, (*path, at)) for at, item in enumerate(value)])
        if not isinstance(value, str) or "$" not in value:
            return value
        text = _REFERENCE.sub(lambda found: self._resolve(found, path, problems), value)
        is_resolved = any(found[2] is not None for found in _REFERENCE.finditer(value))
        return Secret(text, value) if is_resolved else text

    def _resolve(self, found: re.Match[str], path: Pointer, problems: list[Unresolved]) -> str:
        dollar, name, unclosed = found.groups()
        if dollar:
            return "$"
        if unclosed:
            problems.append(Unresolved(path, "'${' without '}'", _FORMS))
            return ""
        if name.startswith("file:"):
            return self._read_file(name.removeprefix("file:"), path, problems)
        name, has_default, default = name.partition(":-")
        if not _ENV_NAME.fullmatch(name):
            problems.append(Unresolved(path, f"${{{name}}} names no environment variable", _FORMS))
            return ""
        value = self.environ.get(name, "")
        if value or has_default:
            return value or default
        if name not in self.environ:
            hint = f"set it, or write ${{{name}:-default}}"
            problems.append(Unresolved(path, f"the environment variable {name} is not set", hint, missing=True))
        return value

    def _read_file(self, name: str, path: Pointer, problems: list[Unresolved]) -> str:
        if not self.may_hold_secret(path):
            hint = "use it in a header's value or an upstream's url"
            problems.append(Unresolved(path, "${file:...} would show a secret here", hint))
            return ""
        try:
            text = self.read(self.base / name).decode()
        except (OSError, ValueError) as error:
            message = f"the file {name} cannot be read: {describe_failure(error)}"
            problems.append(Unresolved(path, message, "mount the secret, or correct the path", missing=True))
            return ""
        return text.removesuffix("\n").removesuffix("\r")
