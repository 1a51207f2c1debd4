"""`read_file` reads a text file of the bundled folder `sandbox`, and nothing outside of it.

The path is resolved first, symbolic links included, and must then lie inside the folder.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from pathlib import Path
from typing import Final

from proxy.extensions.correction.samples.messages import (
    Field,
    SampleAnswer,
    SampleError,
    read_request,
    write_refusal,
    write_success,
)

SANDBOX: Final = Path(__file__).parent / "sandbox"
MAX_BYTES: Final = 1024 * 1024
ENCODINGS: Final = ("utf-8", "ascii", "utf-16")

FIELDS: Final = {
    "path": Field("string"),
    "encoding": Field("string", required=False),
    "max_bytes": Field("int", required=False),
}


def answer(body: bytes, sandbox: Path = SANDBOX) -> SampleAnswer:
    """The text of a file, cut after `max_bytes`."""
    request = read_request("ReadFileRequest", FIELDS, body)
    if isinstance(request, SampleError):
        return write_refusal(request)
    encoding, limit = request.get("encoding", "utf-8"), request.get("max_bytes", MAX_BYTES)
    if encoding not in ENCODINGS:
        return write_refusal(SampleError("INVALID_FORMAT", f"encoding must be one of: {', '.join(ENCODINGS)}"))
    if not 1 <= limit <= MAX_BYTES:
        return write_refusal(SampleError("INVALID_FORMAT", f"max_bytes must be between 1 and {MAX_BYTES}"))
    path = _find_inside(sandbox, request["path"])
    if path is None:
        return write_refusal(_refuse_missing(sandbox, request["path"]))
    content = path.read_bytes()
    try:
        # `final` is false for a cut text: a character that the limit splits is dropped and is not an error of the file.
        text = getincrementaldecoder(encoding)().decode(content[:limit], final=len(content) <= limit)
    except UnicodeError:
        return write_refusal(
            SampleError("INVALID_FORMAT", f"the file is not {encoding} text", details={"field": "encoding"})
        )
    return write_success(
        {"path": request["path"], "content": text, "size": len(content), "truncated": len(content) > limit}
    )


def _find_inside(sandbox: Path, path: str) -> Path | None:
    """The file that `path` names, if it exists inside the sandbox."""
    try:
        found = (sandbox / path).resolve(strict=True)
    except (OSError, ValueError):  # missing, a loop of links, or a NUL in the name
        return None
    return found if found.is_relative_to(sandbox.resolve()) and found.is_file() else None


def _refuse_missing(sandbox: Path, path: str) -> SampleError:
    known = sorted(file.relative_to(sandbox).as_posix() for file in sandbox.rglob("*") if file.is_file())
    return SampleError(
        "RESOURCE_NOT_FOUND",
        f"no such file: {path}",
        category="NOT_FOUND",
        details={"field": "path", "hint": f"The files are: {', '.join(known)}"},
    )
