"""Changes of files, reading them while they are changing, and mounts that hide changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.config.watch import find_mounts, find_warnings, hash_files, load_settled
from tests.serving.mounted import Mounted

CONFIG = "version: 1\nroutes: [{{path: /{0}, upstream: none, tool: a, schema: schemas/a.json}}]\n"


def files(version: str) -> dict[str, str]:
    """A version of a config; its schema names the version too."""
    return {"config.yaml": CONFIG.format(version), "schemas/a.json": f'{{"title": "{version}"}}'}


def versions(folder: Path) -> tuple[str, str]:
    """The version of the config and of the schema, as they are loaded together."""
    (route,) = load_settled(folder / "config.yaml", {}).config.routes
    schema = route.tools["a"].schema
    assert schema is not None
    return route.path, f"/{schema.value['title']}"


def test_hashes_of_the_loaded_files_hold_until_a_file_changes(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, files("v1"))
    loaded = load(tmp_path / "config.yaml", {})
    assert dict(loaded.seen) == hash_files(loaded.seen)
    assert [tmp_path / "config.yaml", tmp_path / "schemas/a.json"] == list(loaded.seen)
    mounted.update(files("v2"))
    assert set() == set(loaded.seen.values()) & set(hash_files(loaded.seen).values())


def test_a_missing_file_is_seen_as_missing_and_its_coming_as_a_change(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.format("v1"))
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "config.yaml", {})
    schema = tmp_path / "schemas/a.json"
    assert ("", "") == (refused.value.seen[schema], hash_files([schema])[schema])
    schema.parent.mkdir()
    schema.write_text("{}")
    assert hash_files(refused.value.seen) != refused.value.seen


@pytest.mark.large
def test_two_versions_are_never_mixed_however_fast_they_change(tmp_path: Path) -> None:
    mounted, over = Mounted(tmp_path, files("v0")), threading.Event()

    def swaps() -> Iterator[None]:
        for number in range(1, 10_000):
            if over.is_set():
                return
            mounted.update(files(f"v{number}"))
            yield

    def swap() -> None:
        for _ in swaps():
            over.wait(0.004)

    thread = threading.Thread(target=swap)
    thread.start()
    found: list[tuple[str, str]] = []
    told: list[str] = []
    try:
        for _ in range(150):
            try:
                found.append(versions(tmp_path))
            except ConfigError as error:  # the error if they do not settle
                told.append(str(error))
    finally:
        over.set()
        thread.join()
    assert all("the files change faster than they can be read" in text for text in told)

    assert len(found) > 20
    assert [] == [pair for pair in found if pair[0] != pair[1]]


def test_warns_of_a_file_that_is_a_separate_mount(tmp_path: Path) -> None:
    alone, mounted = tmp_path / "a b.yaml", tmp_path / "c.yaml"
    table = tmp_path / "mountinfo"
    point = str(alone).replace(" ", r"\040")
    table.write_text(
        f"36 35 98:0 /x {tmp_path} rw,noatime master:1 - ext4 /dev/root rw\n"
        f"37 36 98:0 /x/y {point} ro,relatime - ext4 /dev/root rw\n"
    )
    for path in (alone, mounted):
        path.write_text("")

    assert [alone] == find_mounts([alone, mounted], table.read_text())
    assert [f"{alone} is a separate mount (subPath?): its changes will not be seen; mount its folder instead"] == (
        find_warnings([alone, mounted], table)
    )
    assert [] == find_warnings([alone], tmp_path / "nothing")
