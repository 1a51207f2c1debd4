"""A FastAPI service of ordinary operations, on its own loopback port.

Runs in `.parties/py1`. Prints its port as one line of JSON when it answers; ends when its input does.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import logging
import socket
import sys
from datetime import datetime
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import uvicorn
from fastapi import Cookie, FastAPI, File, Form, Header, Path, Query, UploadFile
from pydantic import BaseModel, Field

app = FastAPI(title="Trips")
DONE: dict[str, Any] = {"done": True}


class Kind(Enum):
    """The means of travel of a stage."""

    TRAIN = "train"
    BUS = "bus"
    FERRY = "ferry"


class Stage(BaseModel):
    """A part of a trip."""

    kind: Kind
    minutes: int = Field(ge=1, le=1440)
    stops: list[str] = []


class NewTrip(BaseModel):
    """A trip to be made."""

    title: str = Field(min_length=1, max_length=80)
    budget: float | None = None
    stages: list[Stage] = Field(default=[], max_length=10)


class TripChange(BaseModel):
    """The fields that may change."""

    title: str | None = Field(default=None, min_length=1)
    budget: float | None = Field(default=None, ge=0)
    tags: list[str] | None = None


class Reminder(BaseModel):
    """When to remind of what."""

    at: datetime
    text: str
    urgent: bool = False


@app.post("/trips", operation_id="add_trip")
def add_trip(trip: NewTrip, dry: bool = False) -> dict[str, Any]:
    """Adds a trip."""
    return DONE


@app.get("/trips/{trip_id}", operation_id="get_trip")
def get_trip(
    trip_id: Annotated[int, Path(ge=1)],
    verbose: bool = False,
    x_team: Annotated[str | None, Header()] = None,
    locale: Annotated[str | None, Cookie()] = None,
) -> dict[str, Any]:
    """One trip."""
    return DONE


@app.patch("/trips/{trip_id}", operation_id="update_trip")
def update_trip(trip_id: int, change: TripChange, notify: bool = True) -> dict[str, Any]:
    """Changes a trip."""
    return DONE


@app.delete("/trips/{trip_id}", operation_id="delete_trip", status_code=204)
def delete_trip(trip_id: int) -> None:
    """Removes a trip."""


@app.put("/trips/{trip_id}/stages/{number}", operation_id="set_stage")
def set_stage(trip_id: int, number: Annotated[int, Path(ge=0, le=9)], stage: Stage) -> dict[str, Any]:
    """Puts one stage into a trip."""
    return DONE


@app.get("/airports", operation_id="find_airports")
def find_airports(
    q: Annotated[str, Query(min_length=2)],
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
    kinds: Annotated[list[Kind] | None, Query()] = None,
    near: Annotated[list[float] | None, Query(min_length=2, max_length=2)] = None,
) -> dict[str, Any]:
    """Airports by a part of their name."""
    return DONE


@app.get("/files/{name}/{version}", operation_id="get_file")
def get_file(name: str, version: UUID) -> dict[str, Any]:
    """One version of a file."""
    return DONE


@app.post("/reminders", operation_id="add_reminder")
def add_reminder(reminder: Reminder) -> dict[str, Any]:
    """Adds a reminder."""
    return DONE


@app.post("/login", operation_id="log_in")
def log_in(user: Annotated[str, Form(min_length=1)], days: Annotated[int, Form(ge=1, le=30)] = 1) -> dict[str, Any]:
    """Begins a session."""
    return DONE


@app.post("/photos", operation_id="add_photo")
def add_photo(
    title: Annotated[str, Form(min_length=1)], photo: Annotated[UploadFile, File()], year: Annotated[int, Form()] = 2026
) -> dict[str, Any]:
    """Adds a photo; says how long it is."""
    return {"bytes": len(photo.file.read())}


@app.get("/notes", operation_id="list_notes")
def list_notes() -> dict[str, Any]:
    """All notes."""
    return DONE


async def serve() -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(256)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.02)
    sys.stdout.write(json.dumps({"trips": listening.getsockname()[1]}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await running


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(serve())
