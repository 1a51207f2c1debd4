"""`weather` gives the usual weather at a place, computed from a table of cities and their monthly normals.

The date is fixed at 15 July, so the same call has the same answer on every day and every machine. `places.csv` holds
monthly mean temperatures in whole degrees Celsius, close to the published normals of 1991-2020. They are good for a
demonstration, not for planning a journey. They are good for a demonstration, not for planning a journey.
"""

from __future__ import annotations

import csv
from datetime import date, timedelta
from functools import cache
from importlib.resources import files
from math import asin, cos, radians, sin, sqrt
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.extensions.correction.samples.messages import (
    Field,
    SampleAnswer,
    SampleError,
    read_request,
    write_refusal,
    write_success,
)

TODAY: Final = date(2025, 7, 15)
EARTH_RADIUS_KM: Final = 6371.0
MONTH_DAYS: Final = 30.4375  # 365.25 / 12: the normals mean the middle of twelve equal months

FIELDS: Final = {
    "lat": Field("float64"),
    "lon": Field("float64"),
    "units": Field("string", required=False),
    "days": Field("int", required=False),
}


@value_class
class City:
    """A city with its twelve monthly mean temperatures in degrees Celsius."""

    name: str
    country: str
    lat: float
    lon: float
    normals: tuple[float, ...]


def answer(body: bytes) -> SampleAnswer:
    """The nearest known place and its temperature for the asked days."""
    request = read_request("WeatherRequest", FIELDS, body)
    if isinstance(request, SampleError):
        return write_refusal(request)
    lat, lon = request["lat"], request["lon"]
    units, days = request.get("units", "metric"), request.get("days", 1)
    if fault := _check_range(lat, lon, units, days):
        return write_refusal(fault)
    place = min(read_cities(), key=lambda known: compute_distance_km(lat, lon, known.lat, known.lon))
    forecast = [
        {"date": day.isoformat(), "temperature": compute_temperature(place, day, units)}
        for day in (TODAY + timedelta(days=ahead) for ahead in range(days))
    ]
    return write_success(
        {
            "place": place.name,
            "country": place.country,
            "distance_km": round(compute_distance_km(lat, lon, place.lat, place.lon), 1),
            "temperature": forecast[0]["temperature"],
            "unit": "C" if units == "metric" else "F",
            "forecast": forecast,
            "asked": {"lat": lat, "lon": lon},
        }
    )


def _check_range(lat: float, lon: float, units: str, days: int) -> SampleError | None:
    if not -90 <= lat <= 90:
        return SampleError("INVALID_FORMAT", "lat must be between -90 and 90", details={"field": "lat"})
    if not -180 <= lon <= 180:
        return SampleError("INVALID_FORMAT", "lon must be between -180 and 180", details={"field": "lon"})
    if units not in ("metric", "imperial"):
        return SampleError("INVALID_FORMAT", "units must be one of: metric, imperial", details={"field": "units"})
    if not 1 <= days <= 7:
        return SampleError("INVALID_FORMAT", "days must be between 1 and 7", details={"field": "days"})
    return None


def compute_temperature(place: City, day: date, units: str) -> float:
    """The usual temperature of a day, between the normals of the two nearest months, to a tenth of a degree."""
    month, share = divmod(day.timetuple().tm_yday / MONTH_DAYS - 0.5, 1)
    before, after = place.normals[int(month) % 12], place.normals[int(month + 1) % 12]
    celsius = before + (after - before) * share
    return round(celsius if units == "metric" else celsius * 9 / 5 + 32, 1)


def compute_distance_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """The great-circle distance of two points in kilometres (haversine formula)."""
    phi, other_phi = radians(lat), radians(other_lat)
    half = sin((other_phi - phi) / 2) ** 2 + cos(phi) * cos(other_phi) * sin(radians(other_lon - lon) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(min(1.0, sqrt(half)))


@cache
def read_cities() -> tuple[City, ...]:
    """The shipped table of cities."""
    with files("proxy.extensions.correction.samples").joinpath("places.csv").open(encoding="utf-8") as table:
        rows = list(csv.reader(table))[1:]
    return tuple(
        City(name, country, float(lat), float(lon), tuple(map(float, normals)))
        for name, country, lat, lon, *normals in rows
    )
