"""The sample tools that compute: the container `Math`, and `currency` by a table (rates.csv, units for one euro).

The rates are fixed, so the same call has the same answer on every day. All calculation is in decimals.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
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

# --- `Math` -----------------------------------------------------------------------------------------------------------
OPERANDS: Final = {"a": Field("float64"), "b": Field("float64")}


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
        request = read_request(f"{name}Request", OPERANDS, body)
        if isinstance(request, SampleError):
            return write_refusal(request)
        try:
            return write_success({"function": name, "result": FUNCTIONS[name].compute(request["a"], request["b"])})
        except ZeroDivisionError:
            return write_refusal(SampleError("INVALID_REQUEST", "b must not be 0: division by zero", status=422))
        except OverflowError:
            return write_refusal(SampleError("INVALID_REQUEST", "the result is too large for a float64", status=422))

    return answer


# --- `currency`: converts an amount by a bundled table of rates -------------------------------------------------------
FIELDS: Final = {"amount": Field("float64"), "from": Field("string"), "to": Field("string")}


def answer_currency(body: bytes) -> SampleAnswer:
    """The amount in the other currency, rounded to cents."""
    request = read_request("CurrencyRequest", FIELDS, body)
    if isinstance(request, SampleError):
        return write_refusal(request)
    amount = Decimal(str(request["amount"]))
    if amount <= 0:
        return write_refusal(
            SampleError("INVALID_REQUEST", "amount must be greater than 0", details={"field": "amount"})
        )
    for key in ("from", "to"):
        if request[key] not in read_rates():
            return write_refusal(_refuse_unknown(key, request[key]))
    rate = read_rates()[request["to"]] / read_rates()[request["from"]]
    return write_success(
        {
            "amount": float(amount),
            "from": request["from"],
            "to": request["to"],
            "rate": float(round(rate, 6)),
            "result": float(round(amount * rate, 2)),
        }
    )


def _refuse_unknown(key: str, currency: str) -> SampleError:
    """GoMind's own example: `currency not found (due to "Euro" instead of "EUR")`."""
    near = get_close_matches(currency.upper(), list(read_rates()) + list(read_names()), n=1, cutoff=0.6)
    code = read_names().get(near[0], near[0]) if near else "EUR"
    hint = f"Use a three-letter code; did you mean '{code}'?" if near else f"Use a three-letter code such as '{code}'."
    return SampleError(
        "SYMBOL_NOT_FOUND",
        f"currency not found: {currency}",
        category="NOT_FOUND",
        details={"field": key, "original_currency": currency, "hint": hint},
    )


@cache
def _read_rows() -> tuple[tuple[str, str, str], ...]:
    with files("proxy.extensions.correction.samples").joinpath("rates.csv").open(encoding="utf-8") as table:
        return tuple((code, name, units) for code, name, units in list(csv.reader(table))[1:])


@cache
def read_rates() -> dict[str, Decimal]:
    """Currency code -> units for one euro."""
    return {code: Decimal(units) for code, _, units in _read_rows()}


@cache
def read_names() -> dict[str, str]:
    """A currency's name in capitals -> its code."""
    return {name.upper(): code for code, name, _ in _read_rows()}
