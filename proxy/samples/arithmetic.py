"""`Math`: a container of four functions (HPD, Container Parameter Validation). Called with nothing it lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.samples.answer import Answer, Fault, refusal, success
from proxy.samples.request import Field, read

FIELDS: Final = {"a": Field("float64"), "b": Field("float64")}


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the container."""

    description: str
    compute: Callable[[float, float], float]


FUNCTIONS: Final = {
    "Add": Function("Adds two numbers.", lambda a, b: a + b),
    "Subtract": Function("Subtracts b from a.", lambda a, b: a - b),
    "Multiply": Function("Multiplies two numbers.", lambda a, b: a * b),
    "Divide": Function("Divides a by b.", lambda a, b: a / b),
}


def expand(body: bytes) -> Answer:
    """The list of functions; a container takes no parameters."""
    if body.strip() not in (b"", b"{}", b"null"):
        return refusal(Fault("INVALID_REQUEST", "Math is a container and takes no parameters"))
    functions = [{"name": name, "description": function.description} for name, function in FUNCTIONS.items()]
    return success({"message": f"Math expanded. Functions: {', '.join(FUNCTIONS)}", "functions": functions})


def answering(name: str) -> Callable[[bytes], Answer]:
    """The handler of one function."""

    def answer(body: bytes) -> Answer:
        request = read(f"{name}Request", FIELDS, body)
        if isinstance(request, Fault):
            return refusal(request)
        try:
            return success({"function": name, "result": FUNCTIONS[name].compute(request["a"], request["b"])})
        except ZeroDivisionError:
            return refusal(Fault("INVALID_REQUEST", "b must not be 0: division by zero", status=422))
        except OverflowError:
            return refusal(Fault("INVALID_REQUEST", "the result is too large for a float64", status=422))

    return answer
