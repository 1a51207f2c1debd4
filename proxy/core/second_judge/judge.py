"""The second opinion on one value: picks a library for a schema, asks it, and reports its verdict.

Other rooms call `judge_value`; `run_job` does the same with jobs of bytes, for a child process (`proxy/offload`). A
hostile schema or value can take any time here, so no code on the way of a call ever asks within its own process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.schema.drafts import META_SCHEMAS, Draft, SchemaError, find_draft, find_published_draft
from proxy.core.schema.formats import Formats
from proxy.core.schema.matching import SearchGivenUp, start_search_budget
from proxy.core.schema.nodes import Schemas
from proxy.core.second_judge.compiled import CompiledJudge
from proxy.core.second_judge.reference import CannotTellError, ReferenceJudge, make_exact

# The number of judges that one process keeps: those for the schemas used last.
_KEPT: Final = 128
# The job's name for the pool.
JOB: Final = "proxy.core.second_judge.judge:run_job"


class SecondVerdict(StrEnum):
    """The kinds of verdict on a value."""

    VALID = "valid"
    INVALID = "invalid"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True)
class Opinion:
    """A verdict, who gave it, and the place: the keyword as a JSON Pointer into the schema where it is known, or the
    reason why there is no verdict. It holds no part of the value."""

    verdict: SecondVerdict
    judge: str = ""
    place: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A schema as the second judge gets it, in bytes: the document, its URI, the documents it may refer to, and how
    formats are asserted."""

    text: bytes


def make_question(schemas: Schemas, *, formats: Formats) -> Question:
    """The question about a compiled schema."""
    documents = {
        uri: schemas.documents[uri]
        for uri in sorted(schemas.reached)
        if uri != schemas.base and not uri.startswith(META_SCHEMAS)
    }
    whole = {
        "base": schemas.base,
        "documents": documents,
        "formats": formats.as_json(),
        "schema": schemas.documents[schemas.base],
    }
    return Question(dumps(whole))


def judge_value(question: Question, value: JsonValue) -> Opinion:
    """The second judge's verdict on a value. It may take any time, so it is for a child process or a command line."""
    try:
        judge, draft = _judge_of(question.text)
        with start_search_budget():
            fault = judge.find_fault(make_exact(value, draft))
    except CannotTellError as error:
        return Opinion(SecondVerdict.CANNOT_TELL, reason=str(error))
    except (SearchGivenUp, SchemaError, RecursionError, ArithmeticError) as error:
        return Opinion(SecondVerdict.CANNOT_TELL, reason=type(error).__name__)
    except Exception as error:  # noqa: BLE001 - a library failing is no verdict
        return Opinion(SecondVerdict.CANNOT_TELL, reason=type(error).__name__)
    if fault is None:
        return Opinion(SecondVerdict.VALID, judge.name)
    return Opinion(SecondVerdict.INVALID, judge.name, format_pointer(fault.place) if fault.place else "")


@lru_cache(maxsize=_KEPT)
def _judge_of(text: bytes) -> tuple[CompiledJudge | ReferenceJudge, Draft]:
    asked = parse(text)
    if isinstance(asked, JsonProblem):
        raise CannotTellError(asked.reason)
    schema, documents = asked["schema"], asked["documents"]
    draft = find_draft(schema, documents=documents)
    formats = Formats.from_json(asked["formats"])
    if isinstance(schema, dict) and "$schema" in schema and find_published_draft(schema["$schema"]) is None:
        raise CannotTellError("$schema names a meta-schema of its own")
    if not documents:
        try:
            return CompiledJudge(schema, draft, formats=formats), draft
        except CannotTellError:
            pass
    return ReferenceJudge(schema, draft, documents=documents, base=asked["base"], formats=formats), draft


def pack_job(question: Question, value: bytes) -> bytes:
    """A job as bytes: the length of the question in 4 bytes, the question, the value as JSON text."""
    return len(question.text).to_bytes(4, "big") + question.text + value


def run_job(job: bytes) -> bytes:
    """Answers a packed job with an opinion as JSON."""
    length = int.from_bytes(job[:4], "big")
    value = parse(job[4 + length :])
    if isinstance(value, JsonProblem):
        opinion = Opinion(SecondVerdict.CANNOT_TELL, reason="the value is no JSON text")
    else:
        opinion = judge_value(Question(job[4 : 4 + length]), value)
    return dumps(
        {"verdict": opinion.verdict.value, "judge": opinion.judge, "place": opinion.place, "reason": opinion.reason}
    )


def unpack_opinion(result: bytes) -> Opinion:
    """The opinion that `run_job` wrote."""
    told: JsonValue = parse(result)
    return Opinion(SecondVerdict(told["verdict"]), told["judge"], told["place"], told["reason"])
