"""Names whose case carries their meaning: quantities and unit symbols.

`1M` is a month and `1m` a minute, `MW` a megawatt and `mW` a milliwatt, `MB` a megabyte and `Mb` a megabit. Where a
schema lists such a name, the same letters in another case may name something else, so no rule folds its case.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

# A number followed by up to three letters: `5m`, `1 MB`.
_QUANTITY: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?\s?[A-Za-zµμ]{1,3}")
# Symbols that take SI prefixes (some prefixes exist in either case), and bits and bytes with any prefix. The symbols
# are those of the SI brochure and IEC 80000-13.
_SYMBOLS: Final = "m|g|s|A|K|mol|cd|Hz|N|Pa|J|W|C|V|F|S|T|H|Wb|lm|lx|Bq|Gy|Sv|L|l|bar|eV|Wh|Ah|VA|Ω|b|B|bit|bps"
_PREFIXED: Final = re.compile(rf"(?:[mp](?:{_SYMBOLS})|[kgt](?:i?b|bit|bps|i?b/s|bit/s))(?:/s)?", re.IGNORECASE)
# Spelt like a unit, but words: morning and afternoon. A lone capital never names the unit of its small letter.
_WORDS: Final = frozenset({"pm", "PM"})
_ALONE: Final = frozenset({"m"})


@lru_cache(maxsize=4096)
def is_case_meaning(name: str) -> bool:
    """Whether a name is a quantity or a unit's symbol, so that another case may be another unit."""
    name = name.strip()
    if name in _WORDS:
        return False
    return name in _ALONE or _QUANTITY.fullmatch(name) is not None or _PREFIXED.fullmatch(name) is not None
