"""The formats of JSON Schema, each as a function on a text, the drafts that know it, and how strictly it is asserted.

JSON Schema 2020-12 leaves open whether a format is asserted (Validation, 7.2.1). Drafts mean RFC 3339 by `date-time`
and `time`; Pydantic and JavaScript read more (`iso8601`): the zone may be missing, a space may mean the `T`, seconds
may be left out. All other formats are asserted as the drafts say.

Every expression here is matched in linear time: a repetition within another one is possessive.
International host names follow IDNA 2008 (RFC 5890 to 5893) with the `idna` package, loaded on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from unicodedata import bidirectional, normalize

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import Draft
from proxy.core.schema.matching import is_pattern

# These characters too may separate the labels of a host name that is not ASCII (RFC 3490 3.1, kept by IDNA 2008).
_DOTS: Final = re.compile("[.\u3002\uff0e\uff61]")
_MAX_HOST: Final = 253

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[zZ]|([+-])([0-9]{2}):([0-9]{2}))")
_DURATION_TIME: Final = r"T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION: Final = re.compile(
    r"P(?:[0-9]+W|" + _DURATION_TIME + r"|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:"
    + _DURATION_TIME + r")?)"
)  # fmt: skip
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_POINTER: Final = re.compile(r"(?:/(?:[^/~]++|~[01])*+)*+", re.DOTALL)
_RELATIVE_POINTER: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]++|~[01])*+)*+)", re.DOTALL)

_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_IPV4: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]+")

# RFC 5322 3.2.3 and 3.2.4, narrowed by RFC 5321 4.1.2 and widened by RFC 6531.
_ATEXT: Final = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
_LOCAL: Final = re.compile(rf'[{_ATEXT}]+(?:\.[{_ATEXT}]+)*|"(?:[ !#-\[\]-~]|\\[ -~])*"')
# By what it does not take: a class that lists 1.1 million characters takes 7 ms of each start.
_WIDE_ATEXT: Final = r"[^\x00-\x20\"(),.:;<>@\[\\\]\x7f]"
_IDN_LOCAL: Final = re.compile(rf'{_WIDE_ATEXT}+(?:\.{_WIDE_ATEXT}+)*|"(?:[^\x00-\x1f"\\\x7f]|\\[ -~])*"')

# RFC 3986 appendix A; RFC 3987 2.2 for the additional characters of an IRI.
_UNRESERVED: Final = r"A-Za-z0-9._~!$&'()*+,;=\-"
_UCS: Final = r"\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U000dffff"
_PRIVATE: Final = r"\ue000-\uf8ff\U000f0000-\U0010fffd"
_REFERENCE: Final = (
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?"
)
_PARTS: Final = re.compile(_REFERENCE, re.DOTALL)
_AUTHORITY: Final = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>\[[^\]]*\]|[^:@\[\]]*)(?::[0-9]*)?")
_FUTURE: Final = re.compile(rf"[vV][0-9A-Fa-f]+\.[{_UNRESERVED}:]+")

_TEMPLATE: Final = re.compile(
    r"(?:[^\x00-\x20\"%<>\\^`{|}\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufff0-\uffff\U0010fffe\U0010ffff]|%[0-9A-Fa-f]{2}"
    r"|\{[+#./;?&=,!@|]?(?P<names>[^{}]+)\})*"
)
_EXPRESSION: Final = re.compile(r"\{[+#./;?&=,!@|]?([^{}]*)\}")
_VARIABLE: Final = re.compile(
    r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(?::[1-9][0-9]{0,3}|\*)?"
)


def is_date(text: str) -> bool:
    """RFC 3339 `full-date` that exists in the calendar."""
    # The year 0 was a leap year, as 4 was.
    return _DATE.fullmatch(text) is not None and _reads(date.fromisoformat, re.sub("^0000", "0004", text))


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """RFC 3339 `full-time`; a leap second is accepted only at the end of a day in UTC."""
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    hour, minute, second, offset_hour, offset_minute = (int(found[part] or 0) for part in (1, 2, 3, 5, 6))
    if hour > 23 or minute > 59 or second > 60 or offset_hour > 23 or offset_minute > 59:
        return False
    offset = (offset_hour * 60 + offset_minute) * (-1 if found[4] == "-" else 1)
    return second < 60 or (hour * 60 + minute - offset) % 1440 == 1439


def is_ipv4(text: str) -> bool:
    """RFC 2673 3.2 `dotted-quad`, without leading zeros."""
    return _IPV4.fullmatch(text) is not None and _reads(IPv4Address, text)


def is_ipv6(text: str) -> bool:
    """RFC 4291 2.2, without a zone."""
    return _IPV6.fullmatch(text) is not None and _reads(IPv6Address, text)


# --- host names and addresses of mail ---------------------------------------------------------------------------------
def is_hostname(text: str, *, knows_idna: bool = True) -> bool:
    """RFC 1123 2.1; from draft 7 on, a label that starts with `xn--` must follow IDNA 2008 (RFC 5890 2.3.2.1)."""
    is_fit = 0 < len(text) <= _MAX_HOST and text.isascii()
    return is_fit and all(_is_label(label, knows_idna=knows_idna) for label in text.split("."))


def _is_label(label: str, *, knows_idna: bool = True) -> bool:
    if len(label) > 63 or _LABEL.fullmatch(label) is None:
        return False
    if label[2:4] != "--" or not knows_idna:
        return True
    import idna

    label = label.lower()
    try:
        return label[:4] == "xn--" and bool(idna.alabel(idna.ulabel(label)) == label.encode())
    except UnicodeError:
        return False


def is_idn_hostname(text: str) -> bool:
    """RFC 5890 2.3.2.3; RFC 5893: in a name with a right-to-left label, every label must keep the bidi rule."""
    if not 0 < len(text) <= _MAX_HOST:
        return False
    import idna

    is_mixed = any(bidirectional(character) in ("R", "AL", "AN") for character in text)
    try:
        return all(
            (_is_label(label) if label.isascii() else len(idna.alabel(label)) <= 63)
            and (not is_mixed or idna.check_bidi(label, check_ltr=True))
            for label in _DOTS.split(text)
        )
    except UnicodeError:
        return False


def _is_mail(text: str, local: re.Pattern[str], is_host: Callable[[str], bool]) -> bool:
    """RFC 5321 4.1.2 `Mailbox`; RFC 6531 `Mailbox` with the wider names and hosts."""
    name, at, host = text.rpartition("@")
    if not at or local.fullmatch(name) is None:
        return False
    if host.startswith("[") and host.endswith("]"):
        address = host[1:-1]
        return is_ipv6(address[5:]) if address.lower().startswith("ipv6:") else is_ipv4(address)
    return is_host(host)


# --- addresses --------------------------------------------------------------------------------------------------------
@cache
def _component(further: str, *, wide: bool, query: bool = False) -> re.Pattern[str]:
    """A pattern for one component of a URI, or of an IRI, that also accepts the characters in `further`."""
    extra = (_UCS if wide else "") + (_PRIVATE if wide and query else "")
    return re.compile(rf"(?:[{_UNRESERVED}{further}{extra}]++|%[0-9A-Fa-f]{{2}})*+")


def _is_reference(text: str, *, wide: bool, absolute: bool) -> bool:
    """RFC 3986 `URI-reference`, or a `URI` if it is `absolute`; those of RFC 3987 if it is `wide`."""
    found = _PARTS.fullmatch(text)
    if found is None or (absolute and found["scheme"] is None):
        return False
    authority, path = found["authority"], found["path"]
    if found["scheme"] is None and authority is None and ":" in path.partition("/")[0]:
        return False
    return (
        (authority is None or _is_authority(authority, wide=wide))
        and _component(":@/", wide=wide).fullmatch(path) is not None
        and _component(":@/?", wide=wide, query=True).fullmatch(found["query"] or "") is not None
        and _component(":@/?", wide=wide).fullmatch(found["fragment"] or "") is not None
    )


def _is_authority(text: str, *, wide: bool) -> bool:
    found = _AUTHORITY.fullmatch(text)
    if found is None or _component(":", wide=wide).fullmatch(found["user"] or "") is None:
        return False
    host = found["host"]
    if host.startswith("["):
        return is_ipv6(host[1:-1]) or _FUTURE.fullmatch(host[1:-1]) is not None
    return _component("", wide=wide).fullmatch(host) is not None


def is_uri_template(text: str) -> bool:
    """RFC 6570 section 2."""
    return _TEMPLATE.fullmatch(text) is not None and all(
        _VARIABLE.fullmatch(name) is not None for found in _EXPRESSION.finditer(text) for name in found[1].split(",")
    )


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


# Format -> the first draft that knows it, and its function.
_FORMATS: Final[Mapping[str, tuple[Draft, Callable[[str], bool]]]] = {
    "date": (Draft.D4, is_date),
    "date-time": (Draft.D4, lambda text: text[10:11] in ("T", "t") and is_date(text[:10]) and is_time(text[11:])),
    "duration": (Draft.D2019, _matches(_DURATION)),
    "email": (Draft.D4, partial(_is_mail, local=_LOCAL, is_host=is_hostname)), "hostname": (Draft.D4, is_hostname),
    "idn-email": (Draft.D4, partial(_is_mail, local=_IDN_LOCAL,
                                    is_host=lambda host: is_idn_hostname(normalize("NFC", host)))),
    "idn-hostname": (Draft.D7, is_idn_hostname), "ipv4": (Draft.D4, is_ipv4), "ipv6": (Draft.D4, is_ipv6),
    "iri": (Draft.D7, partial(_is_reference, wide=True, absolute=True)),
    "iri-reference": (Draft.D7, partial(_is_reference, wide=True, absolute=False)),
    "json-pointer": (Draft.D6, _matches(_POINTER)), "regex": (Draft.D4, is_pattern),
    "relative-json-pointer": (Draft.D7, _matches(_RELATIVE_POINTER)), "time": (Draft.D4, is_time),
    "uri": (Draft.D4, partial(_is_reference, wide=False, absolute=True)),
    "uri-reference": (Draft.D6, partial(_is_reference, wide=False, absolute=False)),
    "uri-template": (Draft.D6, is_uri_template), "uuid": (Draft.D2019, _matches(_UUID)),
}  # fmt: skip


def list_formats(draft: Draft) -> list[str]:
    """The formats that a draft knows."""
    return [name for name, (first, _) in _FORMATS.items() if draft >= first]


def format_check(name: str, draft: Draft) -> Callable[[str], bool] | None:
    """The function that checks a text against a format, or None where the draft does not know the format."""
    first, check = _FORMATS.get(name, (Draft.D2020, None))
    if check is is_hostname and draft < Draft.D7:
        return partial(is_hostname, knows_idna=False)
    return check if draft >= first else None


# --- how strictly -----------------------------------------------------------------------------------------------------
MODES: Final = ("iso8601", "rfc3339", "off")
# The formats that have the mode `iso8601`.
ADJUSTABLE: Final = ("date-time", "time")
# Beside `format` in a schema: the mode for one property.
KEYWORD: Final = "x-format"

_WIDE_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,12})?)?"
_WIDE_ZONE: Final = r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?"
_WIDE_CLOCK: Final = re.compile(_WIDE_TIME + _WIDE_ZONE)
_WIDE_MOMENT: Final = re.compile(rf"[0-9-]{{10}}[Tt ]{_WIDE_TIME}{_WIDE_ZONE}")


@value_class
class Formats:
    """The settings of formats: whether they are asserted, and the mode of those that are adjusted (format, mode)."""

    asserted: bool = True
    modes: tuple[tuple[str, str], ...] = ()

    def mode(self, name: str, written: JsonValue = None) -> str:
        """Returns how strictly a format is asserted: one of `MODES`, `rfc3339` standing for the draft's own meaning.
        `written` is what the schema says in `x-format` beside the format."""
        if isinstance(written, str) and written in MODES and (name in ADJUSTABLE or written == "off"):
            return written
        return dict(self.modes).get(name, "rfc3339")

    def check(self, name: str, draft: Draft, mode: str) -> Callable[[str], bool] | None:
        """The function that checks a text against a format in a mode, or None where nothing is asserted."""
        strict = format_check(name, draft) if self.asserted and mode != "off" else None
        if strict is None or mode != "iso8601" or name not in ADJUSTABLE:
            return strict
        if name == "time":
            return lambda text: _WIDE_CLOCK.fullmatch(text) is not None or strict(text)
        return lambda text: (_WIDE_MOMENT.fullmatch(text) is not None and is_date(text[:10])) or strict(text)

    def as_json(self) -> JsonValue:
        """The value as JSON, for another process."""
        return dict(self.modes) if self.asserted else False

    @classmethod
    def from_json(cls, value: JsonValue) -> Formats:
        """The formats that `as_json` wrote."""
        return cls(True, tuple(value.items())) if isinstance(value, dict) else NONE


# Three settings: formats as the drafts define them, none asserted, and the default for the tools of a config.
STRICT: Final = Formats()
NONE: Final = Formats(False)
USUAL: Final = Formats(True, tuple((name, "iso8601") for name in ADJUSTABLE))
