"""An operator's own lines in the answers about one tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.model import codes
from proxy.core.model.values import Container, ContainerFunction, ContainerMisuse, Failure, Violation
from proxy.server.setup.services import GROUP, Formatter, Formatters

FAILURE = Failure(codes.INVALID_ARGUMENTS, "broken")


def lines(formatters: dict[str, Formatter], tool: str = "weather") -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    reported: list[tuple[str, str]] = []
    made = Formatters(formatters, lambda name, error: reported.append((name, type(error).__name__)))
    return made.lines(tool, FAILURE), reported


def test_a_formatter_adds_its_lines_only_to_answers_of_its_tool() -> None:
    def advice(failure: Failure) -> list[str]:
        return [f"{failure.code}: cities are not coordinates"]

    assert (("INVALID_ARGUMENTS: cities are not coordinates",), []) == lines({"weather": advice})
    assert ((), []) == lines({"weather": advice}, "currency")


def test_the_star_formats_every_tool_without_a_formatter() -> None:
    def own(failure: Failure) -> list[str]:
        return ["own"]

    def every(failure: Failure) -> list[str]:
        return ["every"]

    assert (("own",), []) == lines({"weather": own, "*": every})
    assert (("every",), []) == lines({"weather": own, "*": every}, "currency")


def test_five_lines_of_300_characters_are_taken_from_a_formatter_that_never_ends() -> None:
    def endless(failure: Failure) -> Iterator[str]:
        while True:
            yield "x" * 1000

    assert (("x" * 300,) * 5, []) == lines({"weather": endless})


def test_a_formatter_that_fails_is_reported_and_costs_no_answer() -> None:
    def failing(failure: Failure) -> Iterable[str]:
        raise KeyError("missing")

    assert ((), [("weather", "KeyError")]) == lines({"weather": failing})


def test_ignores_changes_that_a_formatter_makes_to_a_failure() -> None:
    def meddling(failure: Failure) -> list[str]:
        failure.message = "all is well"  # type: ignore[misc]
        failure.violations[0].message = "nothing"  # type: ignore[misc]
        return []

    failure = replace(FAILURE, violations=(Violation(codes.TYPE_MISMATCH, ("a",), "wrong"),))
    Formatters({"weather": meddling}, lambda name, error: None).lines("weather", failure)  # noqa: ARG005
    assert ("broken", "wrong") == (failure.message, failure.violations[0].message)


def test_a_formatter_changes_nothing_that_later_answers_share() -> None:
    container = Container("math", functions=(ContainerFunction("add"),))
    reported: list[str] = []
    places: dict[str, Callable[[Failure], object]] = {
        "code": lambda failure: failure.code,
        "code of an error": lambda failure: failure.violations[0].code,
        "container": lambda failure: failure.container and failure.container.container,
        "function": lambda failure: failure.container and failure.container.container.functions[0],
    }
    for place, find in places.items():

        def meddling(failure: Failure, find: Callable[[Failure], object] = find) -> list[str]:
            failure.details["hint"] = "all is well"  # type: ignore[index]
            setattr(find(failure), "name", "meddled")  # noqa: B010 - mypy sees what is frozen
            return []

        failure = replace(
            FAILURE,
            violations=(Violation(codes.TYPE_MISMATCH, ("a",), "wrong"),),
            container=ContainerMisuse(container, {}),
        )
        Formatters({place: meddling}, lambda name, error: reported.append(name)).lines(place, failure)  # noqa: ARG005
        assert {} == failure.details
    assert ["INVALID_ARGUMENTS", "VAL-002", "math", "add"] == [
        codes.INVALID_ARGUMENTS.name, codes.TYPE_MISMATCH.name, container.name, container.functions[0].name,
    ]  # fmt: skip
    assert list(places) == reported


def test_a_formatter_is_found_in_the_entry_points_of_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    assert () == Formatters.load_installed(lambda name, _error: reported.append(name)).lines("weather", FAILURE)
    package = tmp_path / "kind_words-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: kind-words\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{GROUP}]\nweather = kind_words:advise\nother = kind_words:missing\n")
    (tmp_path / "kind_words.py").write_text("def advise(failure):\n    return ['be kind']\n")
    monkeypatch.syspath_prepend(tmp_path)
    formatters = Formatters.load_installed(lambda name, _error: reported.append(name))
    assert (("be kind",), ["other"]) == (formatters.lines("weather", FAILURE), reported)
