"""What the name of a data set says: where it lies, its fields, and the classes or items that are kept.

csv:FILE#target=COLUMN,drop=a+b        a place, then fields
digits#hold_out=8+9                    without these classes; `only=8+9`: these alone
cifar10#first=10000                    the first training items; `test=1000`: the first test items
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from ..errors import DataError, did_you_mean

__all__ = ["place_and_fields", "selection", "with_selection"]


def place_and_fields(text: str, kind: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The place and the fields of `PLACE#field=value,field=value`; a comma ends a value where a field follows it.

    >>> place_and_fields("a.csv#target=price, net,sep=;", "a table", ["target", "sep"])
    ('a.csv', {'target': 'price, net', 'sep': ';'})
    """
    place, *rest = re.split(r"#(?=\w+=)", text, maxsplit=1)
    fields: dict[str, str] = {}
    for part in re.split(r",(?=\w+=)", rest[0]) if rest else []:
        name, _, value = part.partition("=")
        if name not in known:
            raise DataError(
                f"{kind} has the fields {', '.join(known)}, however: {name!r} was given. {did_you_mean(name, known)}"
            )
        if name in fields:
            raise DataError(f"a field is given once, however: {name} is given as {fields[name]!r} and {value!r}")
        if not value:
            raise DataError(f"a field has a value, however: {name}= has none")
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
    found = re.search(r"[#,](?:(hold_out|only|first)=([^#=]+)|(test)=(\d+))$", name)
    if not found:
        return name, "", []
    choice, chosen = found[1] or found[3], found[2] or found[4]
    return name[: found.start()], choice, [unquote(word) for word in chosen.split("+")]


def with_selection(name: str, choice: str, classes: Sequence[str]) -> str:
    """The name of the same data with a choice; what separates names is written as in web addresses.

    >>> with_selection("digits", "hold_out", ["8", "9"]), with_selection("a#size=8", "only", ["A+"])
    ('digits#hold_out=8+9', 'a#size=8,only=A%2B')
    """
    joint = "," if re.search(r"#\w+=", name) else "#"
    words = [re.sub(r"[%+#=,]", lambda mark: f"%{ord(mark[0]):02X}", word) for word in classes]
    return f"{name}{joint}{choice}={'+'.join(words)}"
