"""The lines that were recorded last of one tool: of the file that is written, those beside it that other workers write
(FILE.PID), and the packed older ones, newest first.
"""

from __future__ import annotations

import gzip
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from proxy.core.json.jsontext import dumps
from proxy.recording.line import RecordedLine, read_line


def read_last_lines(path: Path, route: str, tool: str, most: int) -> list[RecordedLine]:
    """At most `most` lines of a tool on a route, the latest last. A file that cannot be read counts as empty."""
    found: list[RecordedLine] = []
    for file in _newest_first(path):
        if len(found) >= most:
            break
        kept = deque(_lines_of(file, route, tool), most - len(found))
        found[:0] = kept
    return found


def _newest_first(path: Path) -> list[Path]:
    beside = (one for one in path.parent.glob(f"{path.name}.*") if one.suffix == ".gz" or one.suffix[1:].isdecimal())
    dated = [(each.stat().st_mtime_ns, each) for each in (path, *beside) if each.is_file()]
    return [each for _, each in sorted(dated, reverse=True)]


def _lines_of(path: Path, route: str, tool: str) -> Iterator[RecordedLine]:
    """Those lines of a file that belong to a tool; a line that is being written, and a broken file's rest, are left
    out."""
    named = dumps(tool)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for text in lines:
                if named not in text:
                    continue
                line = read_line(text)
                if isinstance(line, RecordedLine) and (line.route, line.tool) == (route, tool):
                    yield line
    except (OSError, EOFError):
        return
