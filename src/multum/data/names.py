"""What the name of a data set says: where it lies, its fields, and the classes or examples that are chosen.

csv:FILE#target=COLUMN,drop=a+b        a place, then fields
digits#hold_out=8+9                    without these classes; `only=8+9`: these alone
cifar10#first=10000                    the first training examples; `test=1000`: the first test examples
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from ..errors import DataError, check_known

SHOWN = 8  # names in a list that a person reads


def place_and_fields(text: str, kind: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The place and the fields of `PLACE#field=value,field=value`; a comma ends a value where a field follows it.

    >>> place_and_fields("a.csv#target=price, net,sep=;", "a table", ["target", "sep"])
    ('a.csv', {'target': 'price, net', 'sep': ';'})
    """
    place, *rest = re.split(r"#(?=\w+=)", text, maxsplit=1)
    fields: dict[str, str] = {}
    for part in re.split(r",(?=\w+=)", rest[0]) if rest else []:
        name, _, value = part.partition("=")
        check_known(name, known, f"a field of {kind} must be one of {', '.join(known)}", DataError)
        if name in fields:
            raise DataError(f"{name} must be set once; got {fields[name]!r} and {value!r}")
        if not value:
            raise DataError(f"{name}=VALUE must have a value; got {name}=")
        fields[name] = value
    return place, fields


def selection(name: str) -> tuple[str, str, list[str]]:
    """A name without its last choice; the choice, "hold_out", "only", "first" or "test" (or ""); and what is chosen.

    >>> selection("folder:pets#size=64,hold_out=cat+dog")
    ('folder:pets#size=64', 'hold_out', ['cat', 'dog'])
    >>> selection("mnist#test=2000"), selection("csv:a.csv#test=b.csv")[1]
    (('mnist', 'test', ['2000']), '')
    """
    # A table's own field `test` names a file.
    match = re.search(r"[#,](?:(hold_out|only|first)=([^#=]+)|(test)=(\d+))$", name)
    if not match:
        return name, "", []
    choice, chosen = match[1] or match[3], match[2] or match[4]
    words = chosen.split("+") if choice in ("hold_out", "only") else [chosen]
    return name[: match.start()], choice, [unquote(word) for word in words]


def with_selection(name: str, choice: str, classes: Sequence[str]) -> str:
    """The name of the same data with a choice; what separates names is written as in web addresses.

    >>> with_selection("digits", "hold_out", ["8", "9"]), with_selection("a#size=8", "only", ["A+"])
    ('digits#hold_out=8+9', 'a#size=8,only=A%2B')
    """
    joint = "," if re.search(r"#\w+=", name) else "#"
    words = [re.sub(r"[%+#=,]", lambda mark: f"%{ord(mark[0]):02X}", word) for word in classes]
    return f"{name}{joint}{choice}={'+'.join(words)}"


def listed(names: Sequence[str]) -> str:
    """The first of them, and how many more."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
