"""`Math`: a container of four functions (HPD, Container Parameter Validation). A call without arguments lists them."""

from __future__ import annotations

from collections.abc import Callable
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

FIELDS: Final = {"a": Field("float64"), "b": Field("float64")}


@value_class
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


def expand(body: bytes) -> SampleAnswer:
    """The list of functions; a container takes no parameters."""
    if body.strip() not in (b"", b"{}", b"null"):
        return write_refusal(SampleError("INVALID_REQUEST", "Math is a container and takes no parameters"))
    functions = [{"name": name, "description": function.description} for name, function in FUNCTIONS.items()]
    return write_success({"message": f"Math expanded. Functions: {', '.join(FUNCTIONS)}", "functions": functions})


def make_handler(name: str) -> Callable[[bytes], SampleAnswer]:
    """The handler of one function."""

    def answer(body: bytes) -> SampleAnswer:
        request = read_request(f"{name}Request", FIELDS, body)
        if isinstance(request, SampleError):
            return write_refusal(request)
        try:
            return write_success({"function": name, "result": FUNCTIONS[name].compute(request["a"], request["b"])})
        except ZeroDivisionError:
            return write_refusal(SampleError("INVALID_REQUEST", "b must not be 0: division by zero", status=422))
        except OverflowError:
            return write_refusal(SampleError("INVALID_REQUEST", "the result is too large for a float64", status=422))

    return answer
