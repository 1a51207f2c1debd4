"""The sample tools compute, and are as strict as tools in the field are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.extensions.correction.samples import files, numbers, weather
from proxy.extensions.correction.samples.messages import SampleAnswer


def said(answer: SampleAnswer) -> tuple[int, Any]:
    """Status and the data of a success, or status and the code and message of an error."""
    body = json.loads(answer.body)
    if body["success"]:
        return answer.status, body["data"]
    return answer.status, (body["error"]["code"], body["error"]["message"])


# --- weather ----------------------------------------------------------------------------------------------------------
def test_the_weather_of_a_point_is_that_of_the_nearest_city() -> None:
    assert said(weather.answer(b'{"lat": 48.85, "lon": 2.35}')) == (
        200,
        {
            "place": "Paris",
            "country": "France",
            "distance_km": 0.8,
            "temperature": 20.9,
            "unit": "C",
            "forecast": [{"date": "2025-07-15", "temperature": 20.9}],
            "asked": {"lat": 48.85, "lon": 2.35},
        },
    )


def test_a_forecast_has_as_many_days_as_were_asked_for() -> None:
    _, data = said(weather.answer(b'{"lat": 60, "lon": 25, "days": 3, "units": "imperial"}'))
    assert ["2025-07-15", "2025-07-16", "2025-07-17"] == [day["date"] for day in data["forecast"]]
    assert ("Helsinki", "F") == (data["place"], data["unit"])


def test_a_temperature_lies_between_the_normals_of_its_two_months() -> None:
    for place in weather.read_cities():
        june, july, august = place.normals[5:8]
        celsius = weather.compute_temperature(place, weather.TODAY, "metric")
        assert min(june, july, august) <= celsius <= max(june, july, august), place.name


def test_the_table_holds_at_least_sixty_cities_with_twelve_normals_each() -> None:
    assert len(weather.read_cities()) >= 60
    assert {12} == {len(place.normals) for place in weather.read_cities()}
    assert all(-90 <= place.lat <= 90 and -180 <= place.lon <= 180 for place in weather.read_cities())


def test_the_distance_is_the_great_circle_also_across_the_date_line() -> None:
    assert 343.6 == round(weather.compute_distance_km(48.8566, 2.3522, 51.5074, -0.1278), 1)
    assert 22.2 == round(weather.compute_distance_km(0, 179.9, 0, -179.9), 1)


def test_a_number_in_quotes_is_refused_in_the_words_of_go() -> None:
    assert (
        400,
        (
            "INVALID_REQUEST",
            "Failed to parse request body: "
            "json: cannot unmarshal string into Go struct field WeatherRequest.lat of type float64",
        ),
    ) == said(weather.answer(b'{"lat": "48.85", "lon": 2.35}'))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "Failed to parse request body: unexpected end of JSON input"),
        (b"[]", "Failed to parse request body: json: cannot unmarshal array into Go value of type main.WeatherRequest"),
        (b'{"lat": NaN, "lon": 1}', None),
        (b'{"lat": 1e999, "lon": 1}', None),
        (b"[" * 100_000, None),
        (
            b'{"lat": true, "lon": 1}',
            "json: cannot unmarshal bool into Go struct field WeatherRequest.lat of type float64",
        ),
        (b'{"lat": 1, "lon": 1, "days": 2.5}', "number 2.5 into Go struct field WeatherRequest.days of type int"),
        (b'{"lat": 1, "lon": 1, "days": 9223372036854775808}', "WeatherRequest.days of type int"),
        (b'{"lat": null, "lon": 1}', "lat is required"),
        (b'{"lat": 91, "lon": 1}', "lat must be between -90 and 90"),
        (b'{"lat": 1, "lon": -181}', "lon must be between -180 and 180"),
        (b'{"lat": 1, "lon": 1, "units": "Metric"}', "units must be one of: metric, imperial"),
        (b'{"lat": 1, "lon": 1, "days": 8}', "days must be between 1 and 7"),
    ],
)
def test_the_weather_tool_answers_400_and_names_the_field(body: bytes, message: str | None) -> None:
    status, (_, words) = said(weather.answer(body))
    assert 400 == status
    assert words.endswith(message or words)


# --- currency ---------------------------------------------------------------------------------------------------------
def test_an_amount_is_converted_by_the_cross_rate() -> None:
    assert (200, {"amount": 100.0, "from": "USD", "to": "GBP", "rate": 0.787037, "result": 78.7}) == said(
        numbers.answer_currency(b'{"amount": 100, "from": "USD", "to": "GBP"}')
    )


def test_an_unknown_currency_is_a_404_with_a_hint() -> None:
    answer = numbers.answer_currency(b'{"amount": 1, "from": "USD", "to": "Euro"}')
    assert 404 == answer.status
    assert {
        "success": False,
        "error": {
            "code": "SYMBOL_NOT_FOUND",
            "message": "currency not found: Euro",
            "category": "NOT_FOUND",
            "retryable": True,
            "details": {
                "field": "to",
                "original_currency": "Euro",
                "hint": "Use a three-letter code; did you mean 'EUR'?",
            },
        },
    } == json.loads(answer.body)


@pytest.mark.parametrize("amount", ["0", "-5", "-0.01"])
def test_an_amount_must_be_greater_than_nothing(amount: str) -> None:
    body = f'{{"amount": {amount}, "from": "USD", "to": "EUR"}}'.encode()
    assert (400, ("INVALID_REQUEST", "amount must be greater than 0")) == said(numbers.answer_currency(body))


# --- read_file --------------------------------------------------------------------------------------------------------
def test_a_file_of_the_sandbox_is_read() -> None:
    assert (
        200,
        {
            "path": "notes/shopping.txt",
            "content": "3 lemons\n1 loaf of bread\n2 litres of milk\n",
            "size": 42,
            "truncated": False,
        },
    ) == said(files.answer(b'{"path": "notes/shopping.txt"}'))


def test_a_long_file_is_cut_after_max_bytes() -> None:
    assert (200, {"path": "notes/shopping.txt", "content": "3 lem", "size": 42, "truncated": True}) == said(
        files.answer(b'{"path": "notes/shopping.txt", "max_bytes": 5}')
    )


def test_a_cut_never_splits_a_character(tmp_path: Path) -> None:
    (tmp_path / "menu.txt").write_text("café", encoding="utf-8")
    assert (200, {"path": "menu.txt", "content": "caf", "size": 5, "truncated": True}) == said(
        files.answer(b'{"path": "menu.txt", "max_bytes": 4}', tmp_path)
    )


@pytest.mark.parametrize(
    "path", ["../secret.txt", "notes/../../secret.txt", "link.txt", "folder/secret.txt", ".", "", "a\\u0000b", "no.txt"]
)
def test_nothing_outside_the_sandbox_can_be_read(path: str, tmp_path: Path) -> None:
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (sandbox / "link.txt").symlink_to(tmp_path / "secret.txt")
    (sandbox / "folder").symlink_to(tmp_path)
    status, (code, _) = said(files.answer(f'{{"path": "{path}"}}'.encode(), sandbox))
    assert (404, "RESOURCE_NOT_FOUND") == (status, code)


def test_an_absolute_path_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    status, _ = said(files.answer(json.dumps({"path": str(tmp_path / "secret.txt")}).encode()))
    assert 404 == status


# --- math -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("body", [b"", b"{}", b"null"])
def test_the_container_called_with_nothing_lists_its_functions(body: bytes) -> None:
    status, data = said(numbers.expand(body))
    assert (200, "Math expanded. Functions: Add, Subtract, Multiply, Divide") == (status, data["message"])


@pytest.mark.parametrize(("name", "result"), [("Add", 15), ("Subtract", -5), ("Multiply", 50), ("Divide", 0.5)])
def test_a_function_computes(name: str, result: float) -> None:
    assert (200, {"function": name, "result": result}) == said(numbers.make_handler(name)(b'{"a": 5, "b": 10}'))


def test_a_division_by_zero_is_a_422() -> None:
    assert (422, ("INVALID_REQUEST", "b must not be 0: division by zero")) == said(
        numbers.make_handler("Divide")(b'{"a": 1, "b": 0}')
    )
