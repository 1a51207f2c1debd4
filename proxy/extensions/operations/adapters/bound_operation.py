"""An operation with the settings of its policy and its route."""

from __future__ import annotations

from proxy.adapters.base import CallShape
from proxy.core.check.validation import Check
from proxy.core.contract.request_rules import QueryPolicy, WrittenRequest
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue, RawRequest, Violation
from proxy.extensions.operations.adapters.http_request import raw_segments, rewrite_request, write_request
from proxy.extensions.operations.core.channels import find_unwritable
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.http_operation import HttpOperation, bind_arguments


@value_class
class BoundOperation(HttpOperation):
    """Implements `OperationRule`."""

    @property
    def matrix(self) -> frozenset[str]:
        """The path parameters in matrix style, in which `;` has a meaning."""
        return frozenset(each.declared.name for each in self.in_place("path") if each.declared.style == "matrix")

    def find_unwritable(self, value: JsonValue, sent: JsonValue = ABSENT) -> tuple[Violation, ...]:
        """The violations of arguments that cannot be written as a request."""
        return find_unwritable(self, value, sent)

    def write(self, value: JsonValue) -> WrittenRequest:
        """The whole request of a call by name."""
        return write_request(self, value)

    def rewrite(self, request: RawRequest, route_path: str, shape: object, value: JsonValue | None) -> WrittenRequest:
        """The client's request with the changed arguments."""
        if not isinstance(shape, CallShape):
            raise TypeError("the shape of a route is wanted")
        return rewrite_request(request, raw_segments(route_path, request), self, shape, value)


def bind_operation(
    template: RequestTemplate, check: Check | None, *, by_name: bool = False, query: QueryPolicy = QueryPolicy.JUDGE
) -> BoundOperation:
    """Looks up every argument of a template in the schema of its tool."""
    arguments, closed = bind_arguments(template, check)
    return BoundOperation(template, check, arguments, closed, by_name, query)
