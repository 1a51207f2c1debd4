"""`on_escalation` names a webhook, which receives a notice of each escalation.

`delivery.py` writes, signs and delivers notices, `escalations.py` hooks that into the services of calls,
`escalation_section.py` reads the keys.
"""
