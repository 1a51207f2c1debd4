"""What a schema of somebody else's does not guard, in one line."""

from __future__ import annotations

from proxy.core.check.validation import Check
from proxy.core.json.jsontext import format_pointer
from proxy.core.rules.contradictions import list_unsatisfiable
from proxy.core.schema.drafts import is_conditional
from proxy.core.schema.lint import lint


def describe_gaps(check: Check) -> str:
    """What a foreign schema surely means and does not guard, and what no value can satisfy: at most three remarks, or
    ''."""
    remarks = [(each.path, f"{each.message} ({each.hint})") for each in lint(check.schemas) if each.is_grave] + [
        (node.path, f"{message} ({remedy})")
        for node, message, remedy in list_unsatisfiable(check)
        if not is_conditional(node.path)
    ]
    shown = [f"{format_pointer(path)}: {remark}"[:300] for path, remark in remarks[:3]]
    return "; ".join(shown) + (f"; and {len(remarks) - 3} more" if len(remarks) > 3 else "")
