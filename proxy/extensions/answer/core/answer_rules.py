"""A tool's `answer:` settings, as frozen values."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from proxy.core.json.jsontext import TextLimits
from proxy.core.model.value_class import value_class

# The longest answer of a tool that sets no other, in bytes.
MAX_BYTES: Final = 1024 * 1024
# The depth and size within which an answer is read as JSON. Writing it again takes a stack frame for each level.
LIMITS: Final = TextLimits(depth=128, nodes=4_000_000)
# A step of a pointer that means every member.
ANY: Final = "*"
# The only member of a structured result that an SDK made of something other than an object.
_WRAPPED: Final = "result"


@value_class
class AnswerRules:
    """The rules for forwarding the answers of a tool. `max_bytes`: the longest answer, which is refused or, if `cuts`,
    cut. `pointers` name the places to mask, and with `secrets` the built-in patterns do too. `schema`: what happens to
    an answer that breaks its schema; '' if it is not validated here."""

    max_bytes: int = MAX_BYTES
    cuts: bool = False
    pointers: tuple[tuple[str, ...], ...] = ()
    secrets: bool = False
    schema: Literal["", "report", "enforce"] = ""

    def for_texts(self) -> AnswerRules:
        """The rules for the text blocks of an MCP result. SDKs wrap a list as `{"result": [...]}`, and repeat in texts
        the list or each of its items: so pointers below `result` count from there too."""
        inner = [pointer[1:] for pointer in self.pointers if pointer[0] == _WRAPPED and len(pointer) > 1]
        items = [pointer[1:] for pointer in inner if len(pointer) > 1 and (pointer[0] == ANY or pointer[0].isdigit())]
        return replace(self, pointers=(*self.pointers, *inner, *items))

    @property
    def masks(self) -> bool:
        """Returns whether anything is masked."""
        return self.secrets or bool(self.pointers)
