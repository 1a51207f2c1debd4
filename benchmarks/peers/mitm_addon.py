"""An addon of mitmproxy that refuses what jsonschema refuses. Repairs nothing.

SCHEMA_FILE=... mitmdump --mode reverse:http://127.0.0.1:UPSTREAM_PORT --listen-port PORT -q -s mitm_addon.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from mitmproxy import http  # type: ignore[import-not-found,unused-ignore]

VALIDATOR = Draft202012Validator(json.loads(Path(os.environ["SCHEMA_FILE"]).read_text()))


def request(flow: Any) -> None:
    """Judges one request; mitmproxy sends it on unless there is an answer already."""
    try:
        found = [error.message for error in VALIDATOR.iter_errors(json.loads(flow.request.get_content()))]
    except ValueError as error:
        found = [str(error)]
    if found:
        flow.response = http.Response.make(422, json.dumps({"errors": found}), {"content-type": "application/json"})
