"""Reads `on_escalation:`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.files.source import Files
from proxy.config.mistakes import split_url
from proxy.config.model import UpstreamConfig
from proxy.core.model.value_class import value_class


@value_class
class OnEscalation:
    """The webhook that receives escalations: its URL, and the secret that signs the messages."""

    webhook: str = field(repr=False)
    secret: str = field(repr=False)


def read_on_escalation(context: Context, _files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> OnEscalation:
    """Reads the webhook for escalations."""
    written = context.mapping("on_escalation")
    url, secret = reveal(written.get("webhook", "")), reveal(written.get("secret", ""))
    parts = split_url(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        context.mistake(
            ("on_escalation", "webhook"), "no http or https URL", "such as https://ops.example.org/hooks/tools"
        )
    if not secret:
        context.mistake(("on_escalation", "secret"), "the secret is empty", "such as ${ESCALATION_SECRET}")
    return OnEscalation(url, secret)
