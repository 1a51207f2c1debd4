"""Files: read once, remembered, and places also in JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.files.source import Files, JsonPlaces
from proxy.config.mistakes import ConfigError, Mistake, join_words, suggest_word
from proxy.core.model.values import Pointer

TEXT = b'{"a": [1, {"b": true,\n  "c": "x,y{\\""}], "d": {}, "e": []}'


def test_places_in_json_are_found_again() -> None:
    places = JsonPlaces(TEXT)
    expected = {
        (): (1, 1), ("a",): (1, 7), ("a", 0): (1, 8), ("a", 1, "b"): (1, 17), ("a", 1, "c"): (2, 8), ("e",): (2, 34),
        ("zz",): (1, 1), ("a", 1, "q"): (1, 11),
    }  # fmt: skip
    assert expected == {path: places.at(path) for path in expected}


def test_keys_in_json_are_found_again() -> None:
    places = JsonPlaces(TEXT)
    expected = {("a",): (1, 2), ("a", 0): (1, 8), ("a", 1, "b"): (1, 12), ("a", 1, "c"): (2, 3), ("d",): (2, 20)}
    assert expected == {path: places.at(path, key=True) for path in expected}


def test_places_in_yaml_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("x: 1\ny:\n  - {z: 2}\n")
    places = Files().source(path, "a.yaml").places
    expected: dict[Pointer, tuple[int, int]] = {("x",): (1, 4), ("y", 0, "z"): (3, 9), ("y", 1): (3, 3)}
    assert expected == {path: places.at(path) for path in expected}
    assert (3, 6) == places.at(("y", 0, "z"), key=True)


def test_a_file_is_read_once_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("x: 1")
    files = Files()
    first = files.source(path, "a.yaml")
    path.write_text("x: 2")
    assert first is files.source(path, "a.yaml")
    assert ({"x": 1}, (path,)) == (first.value, files.read)


def test_the_digest_is_that_of_the_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("y")
    (tmp_path / "c").write_text("x")

    def digest(*names: str) -> str:
        files = Files()
        for name in names:
            files.text(tmp_path / name)
        return files.digest()

    assert digest("a", "b") == digest("c", "b")
    assert digest("a", "b") != digest("b", "a")


def test_json_is_read_as_strictly_as_calls_are(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1,\n "a": 2}')
    with pytest.raises(ConfigError) as caught:
        Files().source(path, "a.json")
    assert ["a.json"] == [mistake.file for mistake in caught.value.mistakes]
    assert (2, "duplicate key") == (caught.value.mistakes[0].line, caught.value.mistakes[0].message[10:23])


def test_a_mistake_is_one_line_that_editors_can_follow() -> None:
    mistake = Mistake("c.yaml", 3, 7, "route '/a'", "unknown key 'retires'", "did you mean 'repair'?")
    assert "c.yaml:3:7  route '/a'  unknown key 'retires'  (did you mean 'repair'?)" == str(mistake)
    assert "c.yaml:3:7  the file is empty" == str(Mistake("c.yaml", 3, 7, "", "the file is empty"))


def test_mistakes_come_in_the_order_of_the_file_and_each_once() -> None:
    first, second = Mistake("c", 1, 2, "", "x"), Mistake("c", 10, 1, "", "a")
    assert (first, second) == ConfigError([second, first, second]).mistakes


@pytest.mark.parametrize(
    ("written", "known", "hint"),
    [
        ("lissten", ("listen", "admin"), "did you mean 'listen'?"),
        ("WEATHER", ("weather", "currency"), "did you mean 'weather'?"),
        ("zzz", ("weather",), ""),
        ("x", (), ""),
    ],
)
def test_the_nearest_known_word_is_offered(written: str, known: tuple[str, ...], hint: str) -> None:
    assert hint == suggest_word(written, known)


def test_joins_words_as_a_sentence_does() -> None:
    assert ["", "'a'", "'a' or 'b'", "'a', 'b' or 'c'"] == [join_words(words) for words in ("", "a", "ab", "abc")]
    assert join_words(str(number) for number in range(20)).endswith("'11' or 8 more")
