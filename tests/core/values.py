"""Values for property tests: whatever could be handed to a formatter, and credentials that must never show."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from proxy.core.model.codes import ERROR_CODES, VIOLATION_CODES, Severity
from proxy.core.model.values import (
    ABSENT,
    Attempt,
    Container,
    ContainerFunction,
    ContainerMisuse,
    Conversation,
    Document,
    Failure,
    FeedbackLimits,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)

SECRETS = [
    "sk-proj-abcdefghijklmnopqrstuvwx",
    "sk-ant-api03-0123456789abcdef",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11ABCDEFG0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "xoxb-123456789012-abcdefghijkl",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "sk_live_51H8abcdefghijkl",
    "hf_abcdefghijklmnopqrst",
    "glpat-0123456789abcdefghij",
]

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.just(ABSENT)
    | st.builds(object),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters()), inner) | st.tuples(inner) | st.frozensets(st.text())
    ),
    max_leaves=25,
)

# --- results of any kind ----------------------------------------------------------------------------------------------
texts = st.text(st.characters(), max_size=300)
paths = st.lists(texts | st.integers(0, 99), max_size=5).map(tuple)
violations = st.builds(
    Violation,
    st.sampled_from(list(VIOLATION_CODES.values())),
    paths,
    texts,
    texts,
    texts,
    st.sampled_from(list(Severity)),
    anything,
    st.booleans(),
)
misuses = st.builds(
    ContainerMisuse,
    st.builds(Container, texts, texts, st.lists(st.builds(ContainerFunction, texts)).map(tuple)),
    anything,
    texts,
    anything,
)
failures = st.builds(
    Failure,
    st.sampled_from(list(ERROR_CODES.values())),
    texts,
    st.lists(violations, max_size=15).map(tuple),
    texts,
    st.dictionaries(st.sampled_from(["executed", "original_error", "retry_after", "blocked", "x"]), texts),
    st.none() | st.integers(400, 599),
    st.none() | st.booleans(),
    anything,
    st.none() | misuses,
)
results = st.builds(
    ToolResult,
    st.builds(ToolCall, texts, st.just(Document(b"", None)), texts, st.just(Conversation("c-1", Rung.HEADER))),
    failures,
    st.none() | st.builds(Attempt, st.integers(0, 99), st.integers(0, 99)),
    escalated=st.booleans(),
    repeated=st.booleans(),
    history=st.lists(texts, max_size=30).map(tuple),
    accepts=st.lists(texts, max_size=3).map(tuple),
    example=texts,
    example_complete=st.booleans(),
    extra=st.lists(texts, max_size=5).map(tuple),
    limits=st.builds(
        FeedbackLimits,
        st.integers(-1, 12),
        st.integers(-5, 2500),
        st.integers(-5, 120),
        st.just(("/srv",)),
        st.booleans(),
    ),
)
slow_data = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
