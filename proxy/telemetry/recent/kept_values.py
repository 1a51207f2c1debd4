"""The arguments of the last calls, where `admin.values` asks for them: as received and, if repaired, as sent."""

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
    """The arguments of the last calls by the call's number: as received and, if repaired, as sent. The oldest are
    dropped first.

    `preview` keeps what a model would be shown: secret names and credentials masked, paths shortened, long texts cut.
    `full` keeps the arguments whole. What the schema marks secret is `***` in both.
    """

    def __init__(self, shown: ShownValues, room: int) -> None:
        self.shown = shown
        self._room = self._left = room
        self._kept: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()

    def keep(self, seq: int, record: CallRecord) -> None:
        """Keeps the arguments of one call, unless they are too long."""
        call = record.call
        if call is None:
            return
        limits = FeedbackLimits() if record.policy is None else record.policy.feedback
        came = self._text(call.arguments, call.raw, limits)
        went = b""
        if (record.repairs or record.corrections) and record.checked is not None:
            went = self._value(record.checked.value, limits)
        if len(came) + len(went) > LONGEST:
            return
        self._kept[seq] = (came, went)
        self._left -= len(came) + len(went) + _OVERHEAD
        while self._left < 0:
            _, gone = self._kept.popitem(last=False)
            self._left += sum(map(len, gone)) + _OVERHEAD

    def read(self, seq: int) -> tuple[bytes, bytes] | None:
        """Arguments as received and as sent, as JSON texts; b'' where there are none."""
        return self._kept.get(seq)

    def _text(self, arguments: object, raw: bytes, limits: FeedbackLimits) -> bytes:
        if not isinstance(arguments, Document):
            text = raw[:LONGEST].decode("utf-8", "replace")
            return dumps(text if self.shown == "full" else sanitise_value(text, limits))
        if self.shown == "full" and not limits.secret_names:
            return arguments.text[: LONGEST + 1]
        return self._value(arguments.value, limits)

    def _value(self, value: JsonValue, limits: FeedbackLimits) -> bytes:
        if self.shown == "preview":
            return dumps(sanitise_value(value, limits))
        return dumps(mask_names(value, limits.secret_names))


def mask_names(value: JsonValue, names: frozenset[str]) -> JsonValue:
    """A value with `***` at each key of these names."""
    if isinstance(value, Mapping):
        return {key: MASK if key in names else mask_names(item, names) for key, item in value.items()}
    return [mask_names(item, names) for item in value] if isinstance(value, list) else value
