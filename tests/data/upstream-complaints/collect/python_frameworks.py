"""Calls Python frameworks with the wrong arguments of `cases.json` and prints their answers, one JSON object a line.

Needs fastapi httpx pydantic djangorestframework flask marshmallow webargs fastmcp mcp jsonschema in a throw-away
environment. Usage: python python_frameworks.py > python.jsonl
"""
# mypy: ignore-errors
# The frameworks are no dependency of the product, so their types are not there to be checked.

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

HERE = Path(__file__).parent
CASES: dict[str, Any] = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads((HERE / "schema.json").read_text(encoding="utf-8"))


def row(dialect: str, case: str, status: int, content_type: str, body: str, *packages: str) -> None:
    """Prints one sample. Answers that are no errors are left out."""
    if status < 400:
        return
    versions = {name: version(name) for name in packages}
    sample = {"dialect": dialect, "case": case, "status": status, "content_type": content_type, "body": body}
    sys.stdout.write(json.dumps({**sample, "how": "ran", "versions": versions}, ensure_ascii=False) + "\n")


def pydantic_models() -> type:
    """The request as a Pydantic model."""
    from pydantic import BaseModel, ConfigDict, EmailStr, Field

    class Place(BaseModel):
        lat: float
        name: str = ""

    class Stop(BaseModel):
        lat: float = 0

    class WeatherRequest(BaseModel):
        model_config = ConfigDict(extra="forbid")
        lat: float
        lon: float
        days: Annotated[int, Field(ge=1, le=14)] = 1
        units: Literal["metric", "imperial"] = "metric"
        city: Annotated[str, Field(min_length=2)] = "Paris"
        email: EmailStr | None = None
        alerts: bool = False
        tags: list[str] = []
        place: Place | None = None
        stops: list[Stop] = []

    return WeatherRequest


def fastapi() -> None:
    """FastAPI's own 422, and a Pydantic text put into a 400, as handlers that catch ValidationError do."""
    from fastapi import Body, FastAPI, Request
    from fastapi.responses import JSONResponse, PlainTextResponse
    from fastapi.testclient import TestClient
    from pydantic import ValidationError

    model = pydantic_models()
    app = FastAPI()

    @app.post("/plain")
    def plain(request: model) -> dict[str, bool]:
        return {"ok": bool(request)}

    @app.post("/embedded")
    def embedded(arguments: Annotated[model, Body(embed=True)]) -> dict[str, bool]:
        return {"ok": bool(arguments)}

    @app.post("/text")
    async def text(request: Request) -> Any:
        try:
            model.model_validate(await request.json())
        except ValidationError as error:
            return PlainTextResponse(str(error), 400)
        return {}

    @app.post("/wrapped")
    async def wrapped(request: Request) -> Any:
        try:
            model.model_validate(await request.json())
        except ValidationError as error:
            return JSONResponse({"error": str(error)}, 400)
        return {}

    @app.post("/errors")
    async def errors(request: Request) -> Any:
        try:
            model.model_validate(await request.json())
        except ValidationError as error:
            return JSONResponse({"error": "validation failed", "details": json.loads(error.json())}, 400)
        return {}

    client = TestClient(app)
    for case, sent in CASES.items():
        for path, dialect, body in (
            ("/plain", "fastapi", sent),
            ("/embedded", "fastapi", {"arguments": sent}),
            ("/text", "pydantic-text", sent),
            ("/wrapped", "pydantic-text", sent),
            ("/errors", "fastapi", sent),
        ):
            name = case if path in ("/plain", "/text") else f"{case}{path}"
            answer = client.post(path, json=body)
            kind = answer.headers["content-type"]
            row(dialect, name, answer.status_code, kind, answer.text, "fastapi", "pydantic")


def pydantic_v1() -> None:
    """Pydantic v1's errors as FastAPI answered them before 0.100, from the v1 models inside Pydantic 2."""
    from pydantic.v1 import BaseModel, Field, ValidationError

    class Place(BaseModel):
        lat: float

    class Stop(BaseModel):
        lat: float = 0

    class WeatherRequest(BaseModel):
        lat: float
        lon: float
        days: int = Field(1, ge=1, le=14)
        units: Literal["metric", "imperial"] = "metric"
        city: str = Field("Paris", min_length=2)
        alerts: bool = False
        tags: list[str] = []
        place: Place | None = None
        stops: list[Stop] = []

        class Config:
            extra = "forbid"

    for case, sent in CASES.items():
        try:
            WeatherRequest.parse_obj(sent)
        except ValidationError as error:
            found = [{**one, "loc": ["body", *one["loc"]]} for one in error.errors()]
            row("fastapi", f"{case}/v1", 422, "application/json", json.dumps({"detail": found}), "pydantic")
            row("pydantic-text", f"{case}/v1", 400, "text/plain; charset=utf-8", str(error), "pydantic")


def rest_framework() -> None:
    """Django REST framework's errors hash."""
    import django
    from django.conf import settings

    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, USE_I18N=False, SECRET_KEY="x",
                       REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None})  # fmt: skip
    django.setup()
    from rest_framework import serializers
    from rest_framework.response import Response
    from rest_framework.test import APIRequestFactory
    from rest_framework.views import APIView

    class Place(serializers.Serializer):
        lat = serializers.FloatField()
        name = serializers.CharField(required=False)

    class Stop(serializers.Serializer):
        lat = serializers.FloatField(required=False)

    class WeatherRequest(serializers.Serializer):
        lat = serializers.FloatField()
        lon = serializers.FloatField()
        days = serializers.IntegerField(min_value=1, max_value=14, required=False)
        units = serializers.ChoiceField(["metric", "imperial"], required=False)
        city = serializers.CharField(min_length=2, required=False)
        email = serializers.EmailField(required=False)
        alerts = serializers.BooleanField(required=False)
        tags = serializers.ListField(child=serializers.CharField(), required=False)
        place = Place(required=False)
        stops = Stop(many=True, required=False)

    class View(APIView):
        def post(self, request: Any) -> Response:
            serializer = WeatherRequest(data=request.data)
            serializer.is_valid(raise_exception=True)
            return Response({})

    for case, sent in CASES.items():
        answer = View.as_view()(APIRequestFactory().post("/", sent, format="json")).render()
        text = answer.content.decode()
        row("django-rest", case, answer.status_code, "application/json", text, "django", "djangorestframework")


def marshmallow() -> None:
    """Flask with webargs (422, by location) and with marshmallow's messages in a 400."""
    from flask import Flask, jsonify, request
    from marshmallow import Schema, ValidationError, fields, validate
    from webargs.flaskparser import use_args

    class Place(Schema):
        lat = fields.Float(required=True)
        name = fields.Str()

    class Stop(Schema):
        lat = fields.Float()

    class WeatherRequest(Schema):
        lat = fields.Float(required=True)
        lon = fields.Float(required=True)
        days = fields.Int(strict=True, validate=validate.Range(1, 14))
        units = fields.Str(validate=validate.OneOf(["metric", "imperial"]))
        city = fields.Str(validate=validate.Length(min=2))
        email = fields.Email()
        alerts = fields.Bool()
        tags = fields.List(fields.Str())
        place = fields.Nested(Place)
        stops = fields.List(fields.Nested(Stop))

    app = Flask(__name__)

    @app.post("/webargs")
    @use_args(WeatherRequest, location="json")
    def webargs(args: Any) -> Any:
        return args

    @app.errorhandler(422)
    def refused(error: Any) -> Any:
        return jsonify({"errors": error.data["messages"]}), 422

    @app.post("/marshmallow")
    def plain() -> Any:
        try:
            return WeatherRequest().load(request.get_json())
        except ValidationError as error:
            return jsonify(error.messages), 400

    client = app.test_client()
    for case, sent in CASES.items():
        for path in ("webargs", "marshmallow"):
            answer = client.post(f"/{path}", json=sent)
            packages = ("flask", "marshmallow", "webargs")
            row("marshmallow", f"{case}/{path}", answer.status_code, answer.content_type, answer.text, *packages)


def json_schema() -> None:
    """python-jsonschema's texts, as handlers that answer `str(error)` and `error.message` send them."""
    from jsonschema import Draft202012Validator

    judge = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for case, sent in CASES.items():
        for error in list(judge.iter_errors(sent))[:1]:
            row("jsonschema-text", f"{case}/str", 400, "text/plain; charset=utf-8", str(error), "jsonschema")
            body = json.dumps({"error": error.message})
            row("jsonschema-text", f"{case}/message", 400, "application/json", body, "jsonschema")


async def fast_mcp() -> None:
    """The text of a FastMCP tool call with wrong arguments, as a CallToolResult contains it."""
    from fastmcp import Client, FastMCP

    server = FastMCP("weather")

    def get_weather(
        lat: float,
        lon: float,
        days: int = 1,
        units: Literal["metric", "imperial"] = "metric",
        alerts: bool = False,
        tags: list[str] = [],  # noqa: B006
    ) -> str:
        return "sunny"

    server.tool(get_weather)
    async with Client(server) as client:
        for case, sent in CASES.items():
            if not isinstance(sent, dict):
                continue
            result = await client.call_tool("get_weather", sent, raise_on_error=False)
            text = result.content[0].text if result.content else ""
            answer = {"content": [{"type": "text", "text": text}], "isError": result.is_error}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": answer})
            row("mcp-text", case, 400 if result.is_error else 200, "application/json", body, "fastmcp")


if __name__ == "__main__":
    fastapi()
    pydantic_v1()
    rest_framework()
    marshmallow()
    json_schema()
    asyncio.run(fast_mcp())
