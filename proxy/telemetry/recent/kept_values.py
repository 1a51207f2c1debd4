"""The arguments of the last calls, where `admin.values` asks for them: as received and, if repaired, as sent; and those
of the calls in a model's answers that another answer took the place of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Literal

from proxy.core.display.preview import MASK, sanitise_value
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Document, FeedbackLimits, JsonValue
from proxy.interfaces import CallRecord

# The longest arguments kept of one call, in bytes.
LONGEST: Final = 16 * 1024
_OVERHEAD: Final = 200

ShownValues = Literal["off", "preview", "full"]


class KeptValues:
    """The arguments of the last calls by the call's number: as received, if repaired as sent, and those of each call
    in `replaced` answers. The oldest are dropped first.

    `preview` keeps what a model would be shown: secret names and credentials masked, paths shortened, long texts cut.
    `full` keeps the arguments whole. What the schema marks secret is `***` in both.
    """

    def __init__(self, shown: ShownValues, room: int) -> None:
        self.shown = shown
        self._room = self._left = room
        self._kept: OrderedDict[int, tuple[bytes, ...]] = OrderedDict()

    def keep(self, seq: int, record: CallRecord) -> None:
        """Keeps the arguments of one call, unless they are too long; those of answers before its own as far as there is
        room beside them."""
        earlier = [each for answer in record.replaced for each in answer.calls]
        if record.call is None and not earlier:
            return
        texts = [self._came(record), self._went(record)]
        left = LONGEST - sum(map(len, texts))
        if left < 0:
            return
        for each in earlier:
            text = self._came(each)
            texts.append(text if len(text) <= left else b"")
            left -= len(texts[-1])
        self._kept[seq] = tuple(texts)
        self._left -= LONGEST - left + _OVERHEAD
        while self._left < 0:
            _, gone = self._kept.popitem(last=False)
            self._left += sum(map(len, gone)) + _OVERHEAD

    def read(self, seq: int) -> tuple[bytes, ...] | None:
        """Arguments as received and as sent, and those of each call in answers before, as JSON texts; b'' where there
        are none."""
        return self._kept.get(seq)

    def _came(self, record: CallRecord) -> bytes:
        call, limits = record.call, _find_limits(record)
        if call is None:
            return b""
        if not isinstance(call.arguments, Document):
            text = call.raw[:LONGEST].decode("utf-8", "replace")
            return dumps(text if self.shown == "full" else sanitise_value(text, limits))
        if self.shown == "full" and not limits.secret_names:
            return call.arguments.text[: LONGEST + 1]
        return self._value(call.arguments.value, limits)

    def _went(self, record: CallRecord) -> bytes:
        if record.checked is None or not (record.repairs or record.corrections):
            return b""
        return self._value(record.checked.value, _find_limits(record))

    def _value(self, value: JsonValue, limits: FeedbackLimits) -> bytes:
        if self.shown == "preview":
            return dumps(sanitise_value(value, limits))
        return dumps(mask_names(value, limits.secret_names))


def _find_limits(record: CallRecord) -> FeedbackLimits:
    return FeedbackLimits() if record.policy is None else record.policy.feedback


def mask_names(value: JsonValue, names: frozenset[str]) -> JsonValue:
    """A value with `***` at each key of these names."""
    if isinstance(value, Mapping):
        return {key: MASK if key in names else mask_names(item, names) for key, item in value.items()}
    return [mask_names(item, names) for item in value] if isinstance(value, list) else value
