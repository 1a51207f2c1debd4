"""Writes parameters and bodies as the entry `request` of a config; `config/operation_section.py` reads it."""

from __future__ import annotations

from typing import Final

from proxy.core.model.values import JsonValue
from proxy.extensions.operations.core.http.body import FORM, JSON, MULTIPART
from proxy.extensions.operations.core.http.parameters import USUAL_STYLE, Parameter

# The short names of bodies.
BODIES: Final = {"json": JSON, "form": FORM, "multipart": MULTIPART, "none": ""}
_SHORT: Final = {media_type: word for word, media_type in BODIES.items()}


def name_body(media_type: str) -> str:
    """The media type of a body as an entry has it."""
    return _SHORT.get(media_type, media_type)


def is_clear_from_path(parameter: Parameter) -> bool:
    """Whether the braces of the path describe a parameter completely."""
    usual = parameter.style == "simple" and not parameter.explode
    return parameter.place == "path" and usual and parameter.argument in ("", parameter.name)


def write_parameter(parameter: Parameter) -> dict[str, JsonValue]:
    """One parameter as an entry has it."""
    made: dict[str, JsonValue] = {"name": parameter.name, "in": parameter.place}
    if parameter.argument not in ("", parameter.name):
        made["argument"] = parameter.argument
    if parameter.required and parameter.place != "path":
        made["required"] = True
    if parameter.style != USUAL_STYLE[parameter.place]:
        made["style"] = parameter.style
    if parameter.explode != (parameter.style in ("form", "deepObject")):
        made["explode"] = parameter.explode
    if parameter.empty:
        made["empty"] = True
    return made
