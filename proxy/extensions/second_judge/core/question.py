"""The questions to the second judge and its answers, as exchanged between the proxy and the judging process."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import META_SCHEMAS
from proxy.core.schema.formats import Formats
from proxy.core.schema.nodes import Schemas

# The job's name for the pool.
JOB: Final = "proxy.extensions.second_judge.core.judge:run_job"


class SecondVerdict(StrEnum):
    """The kinds of verdict on a value."""

    VALID = "valid"
    INVALID = "invalid"
    CANNOT_TELL = "cannot_tell"


@value_class
class Opinion:
    """A verdict, who gave it, and the place: the keyword as a JSON Pointer into the schema if it is known, or the
    reason why there is no verdict. It holds no part of the value."""

    verdict: SecondVerdict
    judge: str = ""
    place: str = ""
    reason: str = ""


def make_question(schemas: Schemas, *, formats: Formats) -> bytes:
    """A schema as the second judge gets it, as JSON: the document, its URI, the documents it may refer to, and how
    formats are asserted."""
    documents = {
        uri: schemas.documents[uri]
        for uri in sorted(schemas.reached)
        if uri != schemas.base and not uri.startswith(META_SCHEMAS)
    }
    schema, asserted = schemas.documents[schemas.base], formats.as_json()
    return dumps({"base": schemas.base, "documents": documents, "formats": asserted, "schema": schema})


def unpack_opinion(result: bytes) -> Opinion:
    """The opinion that the job wrote."""
    read: JsonValue = parse(result)
    return Opinion(SecondVerdict(read["verdict"]), read["judge"], read["place"], read["reason"])
