"""`currency` converts an amount between currencies by a bundled table of rates (rates.csv, units for one euro).

The rates are fixed, so the same call has the same answer on every day. All calculation is in decimals.
"""

from __future__ import annotations

import csv
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Final

from proxy.extensions.correction.samples.messages import (
    Field,
    SampleAnswer,
    SampleError,
    read_request,
    write_refusal,
    write_success,
)

FIELDS: Final = {"amount": Field("float64"), "from": Field("string"), "to": Field("string")}


def answer(body: bytes) -> SampleAnswer:
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
