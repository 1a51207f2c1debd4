"""Every client at every server, in one run each: clean sessions with and without the proxy, the mistakes of models, and
servers whose tools are shown as one.

Clean sessions have to be the same, answer by answer and byte by byte. Of the mistakes every repairable one arrives
right, every other is an `isError` that names the parameter; none arrives wrong, none is a protocol error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.parties.conftest import Stage
from tests.parties.environment import CLIENTS, asked
from tests.parties.mistakes import BOOK, OBJECTS, verdict
from tests.parties.tap import Exchange
from tests.parties.wirelog import differences, endings, opens_session

pytestmark = pytest.mark.large

BOOKSHOPS: Final = ("high", "low", "fastmcp", "ts1", "ts2")
CALLS: Final = [["book", BOOK], ["book", {**BOOK, "note": None, "title": "Ünï"}], ["fail", {"reason": "no stock"}]]
EVERYTHING: Final = [["echo", {"message": "hello"}], ["get-sum", {"a": 2, "b": 3}], ["get-tiny-image", {}]]
# While it works on these, the server asks the client's model, and its user.
ASKING_BACK: Final = [["trigger-sampling-request", {"prompt": "hello"}], ["trigger-elicitation-request", {}]]
STEPS: Final = {"error": False, "text": "4 steps"}
MISTAKES: Final = [[mistake.tool, mistake.arguments] for mistake in OBJECTS]
COLLAPSED: Final = [
    ["shop", {}],
    ["book", {**BOOK, "copies": "3"}],
    ["shop", {"function": "book", "arguments": BOOK}],
    ["book", {**BOOK, "copies": "several"}],
]


@dataclass(frozen=True)
class Run:
    """One client's run: its answers, by `kind/server`, and the exchanges on the wire of its clean sessions."""

    told: dict[str, Any]
    front: dict[str, list[Exchange]]
    back: dict[str, list[Exchange]]

    def of(self, kind: str) -> dict[str, Any]:
        """Returns the answers of the servers of one kind, by name."""
        return {key.partition("/")[2]: told for key, told in self.told.items() if key.startswith(f"{kind}/")}


def run(client: str, stage: Stage) -> Run:
    """Sends one client to everybody, all sessions at once."""
    asking_back = ASKING_BACK if client == "mcp1" else []  # whose script has a model and its own user
    clean = {name: [*EVERYTHING, *asking_back] if name == "everything" else CALLS for name in stage.direct}
    jobs = {f"direct/{name}": (stage.direct_url(name), calls) for name, calls in clean.items()}
    jobs |= {f"clean/{name}": (stage.url(name), calls) for name, calls in clean.items()}
    kinds: dict[str, list[Any]] = {"mistakes": MISTAKES, "collapsed": COLLAPSED}
    kinds |= {"lenient": MISTAKES} if client == "mcp1" else {}
    for kind, calls in kinds.items():
        jobs |= {f"{kind}/{name}": (stage.url(name, kind), calls) for name in BOOKSHOPS}
    for taps in (stage.front, stage.back):
        for name in clean:
            taps[f"{name}-clean"].exchanges()  # what other tests said before is not of this run
    told = asked(CLIENTS[client], {key: url for key, (url, _) in jobs.items()}, {k: c for k, (_, c) in jobs.items()})
    sides = ({name: taps[f"{name}-clean"].exchanges() for name in clean} for taps in (stage.front, stage.back))
    return Run(told, *sides)


@pytest.fixture(scope="module")
def runs(stage: Stage) -> dict[str, Run]:
    """The runs of all clients, one after the other: their bytes must not mix."""
    return {client: run(client, stage) for client in CLIENTS}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clean_session_is_the_same_to_the_client(client: str, runs: dict[str, Run]) -> None:
    direct, clean = runs[client].of("direct"), runs[client].of("clean")
    assert direct == clean
    for name, told in clean.items():
        assert [1, 2, 3, 4] == told["heard"], name
        assert (told["steps"] == STEPS) is (name != "everything"), told["steps"]
        assert (name != "everything") is told["calls"][2]["error"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clean_session_is_the_same_on_the_wire(client: str, runs: dict[str, Run]) -> None:
    for name, front in runs[client].front.items():
        assert front, name
        assert [] == differences(front, runs[client].back[name]), name
        if opens_session(front):
            assert {"200", "204"} & endings(front), name


@pytest.mark.parametrize("client", CLIENTS)
def test_no_mistake_arrives_wrong_or_is_lost(client: str, runs: dict[str, Run]) -> None:
    for server, told in runs[client].of("mistakes").items():
        assert {mistake.name: "" for mistake in OBJECTS} == {
            mistake.name: verdict(mistake, answer) for mistake, answer in zip(OBJECTS, told["calls"], strict=True)
        }, server


def test_makes_likely_repairs_at_the_lenient_level(runs: dict[str, Run]) -> None:
    for server, told in runs["mcp1"].of("lenient").items():
        assert {mistake.name: "" for mistake in OBJECTS} == {
            mistake.name: verdict(mistake, answer, lenient=True)
            for mistake, answer in zip(OBJECTS, told["calls"], strict=True)
        }, server


@pytest.mark.parametrize("client", CLIENTS)
def test_a_collapsed_server_is_one_tool_and_its_functions_stay_callable(client: str, runs: dict[str, Run]) -> None:
    for server, told in runs[client].of("collapsed").items():
        assert ["shop"] == told["tools"], server
        opened, named, dispatched, wrong = told["calls"]
        assert not opened["error"], opened
        assert all(name in opened["text"] for name in ("book", "fail", "release", "steps", "copies"))
        for answer in (named, dispatched):
            assert not answer["error"], answer
            assert BOOK.items() <= json.loads(answer["text"]).items()
        assert wrong["error"]
        assert "copies" in wrong["text"]
