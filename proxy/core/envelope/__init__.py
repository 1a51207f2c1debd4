"""Failure -> the answer a client reads. One failure inside, many wire formats outside (docs/contract.md).

Each format is a function from a failure's view to a JSON value and one line in `FORMATS`. Its shape is published as
`schemas/envelopes/<format>.schema.json`, and every answer in the tests is held against it. Formats are versioned (Acode
NFR-020): a change that an existing client could stumble over raises the number in `Tool-Format`.

Files: `formats.py` the formats; `parts.py` the parts that several of them show, and the response headers. `feedback.py`
has the text that a model reads; `view.py` the violations in their visible form, and the notes.
"""

from __future__ import annotations

from proxy.core.envelope.formats import AUTO, FORMATS, Format, choose_format, render_failure
from proxy.core.envelope.view import Detail

__all__ = ["AUTO", "FORMATS", "Detail", "Format", "choose_format", "render_failure"]
