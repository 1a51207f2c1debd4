"""Checks the message of a commit: `scope: imperative subject`, at most 72 characters, a blank line before the body.

    python .ci/commit_message.py FILE

The hook `commit-msg` of .pre-commit-config.yaml runs it. Prints each error with how to fix it; exit codes: 0 success,
1 errors found, 2 usage error. The mood is judged by the ending of the first word (`adds`, `added`, `adding`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72
# `git commit --fixup` and its kin: the rebase that squashes them leaves another message.
_SQUASHED = ("fixup! ", "squash! ", "amend! ")
_SUBJECT = re.compile(r"[a-z0-9][a-z0-9_./-]*: (?P<subject>.+)")
# Endings of the third person, the past and the gerund, but not those of `pass`, `focus`, `alias`, `need`, `bring`.
_NOT_IMPERATIVE = re.compile(r"\w*[^saui]s|\w*[^e]ed|\w*[aeiouy]\w*ing")
_VERBS_IN_ED = frozenset({"embed", "shed"})
# Git ignores what follows this line (`git commit --verbose`).
_SCISSORS = "# ------------------------ >8 ------------------------"


def list_errors(message: str) -> list[str]:
    """Returns what is wrong with a message, as `git commit` hands it to a hook; nothing for a good one."""
    lines = [line for line in message.partition(_SCISSORS)[0].splitlines() if not line.startswith("#")]
    text = "\n".join(lines).strip("\n")
    first, _, rest = text.partition("\n")
    if first.startswith(_SQUASHED):
        return []
    errors = []
    if len(first) > LONGEST:
        errors.append(
            f"the subject has {len(first)} characters: use at most {LONGEST}, and put the reason into the body"
        )
    if rest and not rest.startswith("\n"):
        errors.append("the body begins on line 2: leave a blank line after the subject")
    found = _SUBJECT.fullmatch(first)
    if found is None:
        return [*errors, f"the subject is {first!r}: write `scope: imperative subject`, such as `docs: explain reload`"]
    subject = found["subject"]
    verb = subject.split()[0] if subject.split() else ""
    if not re.fullmatch(r"[a-z][a-z-]*", verb):
        errors.append(f"the subject begins with {verb!r}: begin with a verb in lower case")
    elif verb not in _VERBS_IN_ED and _NOT_IMPERATIVE.fullmatch(verb):
        errors.append(f"{verb!r} is not imperative: write what the commit does as an order, such as `add` or `fix`")
    if subject.endswith("."):
        errors.append("the subject ends with a period: leave it out")
    return errors


def main() -> int:
    """Checks the file that the command line names."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    errors = list_errors(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for error in errors:
        print(f"commit message: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
