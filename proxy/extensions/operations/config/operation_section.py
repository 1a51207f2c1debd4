"""Reads a tool's `request`: how its arguments become an HTTP request. `core/http/entries.py` writes such entries."""

from __future__ import annotations

from typing import cast

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import suggest_word
from proxy.config.policies import Written
from proxy.config.sections.units import read_switch
from proxy.core.model.values import Pointer
from proxy.extensions.operations.core.http.entries import BODIES
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.http.parameters import NO_ARGUMENTS, STYLES, USUAL_STYLE, In, Parameter


def read_request(context: Context, at: Pointer, written: Written) -> RequestTemplate | None:
    """The request that an entry describes; None, with the mistakes reported, where it describes none."""
    before = len(context.mistakes)
    path = reveal(written["path"])
    in_braces = [part[1:-1] for part in path.split("/") if part.startswith("{") and part.endswith("}")]
    entries = written.get("parameters", [])
    parameters = [_read_parameter(context, (*at, "parameters", index), entry) for index, entry in enumerate(entries)]
    named = {each.name for each in parameters if each.place == "path"}
    for index, each in enumerate(parameters):
        if each.place == "path" and each.name not in in_braces:
            hint = suggest_word(each.name, in_braces) or "its path has the names in braces"
            context.mistake((*at, "parameters", index, "name"), f"the request's path has no {{{each.name}}}", hint)
    own = [
        Parameter(name, "path", True, True, "simple", False, argument=name) for name in in_braces if name not in named
    ]
    body = reveal(written.get("body", "none"))
    if len(context.mistakes) > before:
        return None
    return RequestTemplate(
        reveal(written.get("method", "POST")),
        path,
        (*own, *parameters),
        BODIES.get(body, body),
        reveal(written.get("body_argument", "")),
        read_switch(written.get("body_required", False)),
        frozenset(reveal(name) for name in written.get("credentials", ())),
    )


def _read_parameter(context: Context, at: Pointer, written: Written) -> Parameter:
    name, place = reveal(written["name"]), cast(In, reveal(written["in"]))
    style = reveal(written.get("style", USUAL_STYLE[place]))
    if style not in STYLES[place]:
        context.mistake(
            (*at, "style"), f"no style of a {place} parameter: {style!r}", f"known: {', '.join(STYLES[place])}"
        )
    if place == "header" and name.lower() in NO_ARGUMENTS:
        context.mistake((*at, "name"), f"the header {name!r} is not an argument", "leave it out; `headers` can set it")
    explode = written.get("explode", style in ("form", "deepObject"))
    return Parameter(
        name,
        place,
        True,
        place == "path" or read_switch(written.get("required", False)),
        style,
        read_switch(explode),
        argument=reveal(written.get("argument", name)),
        empty=read_switch(written.get("empty", False)),
    )
