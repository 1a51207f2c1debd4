"""Writes the results of `check` for programs: one JSON object, SARIF 2.1.0, or workflow commands of GitHub Actions.
Also writes the JSON by which other verbs say that a config cannot be used.

`CheckReport` holds everything found. Each writer takes one and gives the whole text for standard output.
`schemas/verbs/check.schema.json` describes the JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from proxy import __version__
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.plugin import ExtendsVerbs
from proxy.plugins import find_plugins

if TYPE_CHECKING:
    import argparse

    from proxy.config.load import Loaded
    from proxy.config.mistakes import Mistake

# The rules of the SARIF report: id -> (level, description).
_RULES: Final[dict[str, tuple[str, str]]] = {
    "mistake": ("error", "The config cannot be served."),
    "note": ("note", "Worth knowing about what the config serves."),
}
_COMMANDS: Final = {"error": "error", "warning": "warning", "note": "notice"}


@value_class
class FlagFinding:
    """A finding: for people, as a text, and as a value of the JSON object. `text` is '' if nothing is wrong."""

    printed: str
    text: str = ""
    shown: JsonValue = None


@value_class
class CheckFlag:
    """A flag of `check`. Its findings are the list `key` of the JSON object, and results of the SARIF rule `rule`.
    `look` may set the report's `problem`."""

    key: str
    rule: str
    description: str
    look: Callable[[CheckReport, Loaded, argparse.Namespace], list[FlagFinding]]


def list_flags() -> dict[str, CheckFlag]:
    """The flags of plugins, by name."""
    return {name: flag for each in find_plugins(ExtendsVerbs) for name, flag in each.list_check_flags().items()}


@dataclass(slots=True)
class CheckReport:
    """The findings about the config at `path`.

    `mistakes` make the config unusable. `served` is what it serves, as `schemas/verbs/check.schema.json` has it, and
    None for an unusable config. `found`: the findings of each flag, by its key. `problem`: why a flag could not look.
    """

    path: str
    mistakes: tuple[Mistake, ...] = ()
    served: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    found: dict[str, list[FlagFinding]] = field(default_factory=dict)
    problem: str = ""
    exit_code: int = 0


@value_class
class _Finding:
    """One row of a report: the id of its rule, its place and its text."""

    rule: str
    message: str
    file: str
    line: int = 1
    column: int = 1
    where: str = ""


def _list_findings(report: CheckReport) -> Iterator[_Finding]:
    """Yields every finding; one without a line is at the first line of the config."""
    for mistake in report.mistakes:
        yield _Finding("mistake", mistake.text, mistake.file, mistake.line, mistake.column, mistake.where)
    for flag in list_flags().values():
        for found in report.found.get(flag.key, ()):
            if found.text:
                yield _Finding(flag.rule, found.text, report.path)
    for text in report.notes:
        yield _Finding("note", text, report.path)


# --- JSON -------------------------------------------------------------------------------------------------------------
def write_json(report: CheckReport) -> str:
    """The report as one JSON object."""
    shown = {
        "config": report.path,
        "exit_code": report.exit_code,
        "mistakes": [show_mistake(mistake) for mistake in report.mistakes],
        "problem": report.problem or None,
        "notes": report.notes,
        "served": report.served,
    }
    for flag in list_flags().values():
        shown[flag.key] = [found.shown for found in report.found.get(flag.key, ()) if found.shown is not None]
    return json.dumps(shown, ensure_ascii=False, indent=2)


def show_mistake(mistake: Mistake) -> dict[str, Any]:
    """A mistake as a JSON object, of one shape in the output of every verb."""
    return {name: getattr(mistake, name) for name in ("file", "line", "column", "where", "message", "hint")}


def print_unusable(form: str, message: str, mistakes: Iterable[Mistake] = ()) -> int:
    """Prints why nothing can be done and returns the exit code. `message` goes to stderr, or for the format `json` an
    object with it and the mistakes of the config to stdout."""
    if form == "json":
        problem = {"message": message, "mistakes": [show_mistake(mistake) for mistake in mistakes]}
        print(json.dumps({"error": problem}, ensure_ascii=False))
    else:
        print(message, file=sys.stderr)
    return 2


# --- SARIF ------------------------------------------------------------------------------------------------------------
def write_sarif(report: CheckReport) -> str:
    """The report as a SARIF 2.1.0 log with one run. A `problem` is a notification of the run."""
    known = _list_rules()
    ids = list(known)
    rules = [
        {"id": name, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
        for name, (level, text) in known.items()
    ]
    invocation: dict[str, Any] = {"executionSuccessful": not report.problem, "exitCode": report.exit_code}
    if report.problem:
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": {"text": report.problem}}]
    run = {
        "tool": {"driver": {"name": "toolcall-proxy", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_write_result(each, ids.index(each.rule)) for each in _list_findings(report)],
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, ensure_ascii=False, indent=2)


def _list_rules() -> dict[str, tuple[str, str]]:
    return _RULES | {flag.rule: ("warning", flag.description) for flag in list_flags().values()}


def _write_result(found: _Finding, index: int) -> dict[str, Any]:
    region = {"startLine": found.line, "startColumn": found.column}
    # A colon of a relative path is encoded too, since it would end a scheme.
    path = Path(found.file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix(), safe="/")
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
    if found.where:
        location["logicalLocations"] = [{"fullyQualifiedName": found.where}]
    return {
        "ruleId": found.rule,
        "ruleIndex": index,
        "level": _list_rules()[found.rule][0],
        "message": {"text": found.message},
        "locations": [location],
    }


# --- workflow commands ------------------------------------------------------------------------------------------------
def write_github(report: CheckReport) -> str:
    """The report as workflow commands of GitHub Actions, one line each; an empty text where nothing was found."""
    lines = []
    for found in _list_findings(report):
        file = _escape(found.file).replace(":", "%3A").replace(",", "%2C")  # as `escapeProperty` of actions/toolkit
        place = f"file={file},line={found.line},col={found.column}"
        title = f"title=toolcall-proxy {found.rule}"
        lines.append(f"::{_COMMANDS[_list_rules()[found.rule][0]]} {place},{title}::{_escape(found.message)}")
    if report.problem:
        lines.append(f"::error title=toolcall-proxy::{_escape(report.problem)}")
    return "\n".join(lines)


def _escape(text: str) -> str:
    """A command's message, escaped as the runner reads it (actions/toolkit, `escapeData`)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


WRITERS: Final = {"json": write_json, "sarif": write_sarif, "github": write_github}
