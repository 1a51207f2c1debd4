"""The requests to the endpoint, and the scripted answers, match the OpenAI SDK's own types."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from proxy.extensions.correction.core.settings import CorrectionSettings
from proxy.extensions.correction.endpoint import make_request
from tests.extensions.correction.model import completion

ROOT = Path(__file__).parents[3]
SDK = ROOT / ".parties/sdk"
_HOW = "no .parties/sdk here: run .ci/sdks"

ASKED = [{"role": "system", "content": "You repair."}, {"role": "user", "content": "Tool: weather"}]


def test_request_and_answer_are_of_the_sdks_types() -> None:
    if not (SDK.parent / "sdk.stamp").is_file():
        if os.environ.get("CI") == "true":
            pytest.fail(_HOW)
        pytest.skip(_HOW)
    usual, unknown = CorrectionSettings("m", "gpt-4.1-mini"), CorrectionSettings("m", "x", body={"colour": "red"})
    given = {
        "requests": [make_request(settings, ASKED) for settings in (usual, unknown)],
        "completion": json.loads(completion({"can_fix": False}).partition(b"\r\n\r\n")[2]),
    }
    done = subprocess.run(
        [SDK / "bin/python", "tests/extensions/correction/openai_types.py"],
        cwd=ROOT, input=json.dumps(given), capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    assert "request 1: ('colour',) extra_forbidden\n" == done.stdout
