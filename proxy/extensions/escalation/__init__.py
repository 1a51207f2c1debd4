"""Somebody to escalate to: `on_escalation` names a webhook, which is told of each escalation.

`delivery.py` writes, signs and delivers notices, `escalations.py` puts what tells of them among the services of calls,
`escalation_section.py` reads the keys.
"""
