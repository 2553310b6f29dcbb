r"""JSON text of Kafka's messages, character by character as Kafka's tools print it.

kafka-dump-log turns a message into a tree with the generated JsonConverter and prints the tree
with Jackson, without blanks:

type            text
integers        as numbers, int64 too
bool            true, false
float64         as Java's Double.toString; NaN and the infinities as strings
uuid            22 characters, URL-safe base64 without padding
bytes, records  standard base64 with padding
string          control characters as \b \t \n \f \r or \u00XX (capital hex), `"` and `\`
                escaped, everything else as it is
null            null
struct          an object in the order of the schema; tagged fields that equal their default, and
                tagged fields that the schema lacks, are left out

Java before 19 prints some doubles with more digits than are needed to tell them apart. We print
the fewest digits, as Java 19 and later.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode, urlsafe_b64encode

ESCAPED = re.compile(r'["\\\x00-\x1f]')
ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
# Java writes a double without exponent from 10^-3 up to, and not including, 10^7.
PLAIN_MIN_EXPONENT = -3
PLAIN_END_EXPONENT = 7


class Json(str):
    """Text that is JSON already, to be put in as it is."""

    __slots__ = ()


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return ESCAPES.get(character) or f"\\u{ord(character):04X}"


def json_string(text: str) -> str:
    """Quoted and escaped as Jackson does by default."""
    return f'"{ESCAPED.sub(_escape, text)}"'


def json_bool(value: bool) -> str:
    """Either word of JSON."""
    return "true" if value else "false"


def json_bytes(value: bytes) -> str:
    """Standard base64 with padding, quoted."""
    return f'"{b64encode(value).decode()}"'


def json_uuid(value: bytes) -> str:
    """The 22 characters of Kafka's Uuid, quoted."""
    return f'"{urlsafe_b64encode(value).decode().rstrip("=")}"'


def json_double(value: float) -> str:
    """The text of Java's Double.toString (19 and later); a string for what is no number."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    digits, exponent = _shortest_digits(abs(value))
    if PLAIN_MIN_EXPONENT <= exponent < PLAIN_END_EXPONENT:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest_digits(value: float) -> tuple[str, int]:
    """Digits d1 d2 ... and exponent e with value = d1.d2... * 10^e; the fewest that are exact.

    Where one digit would do, Java takes the nearest of two digits: 4.9E-324 rather than 5E-324.
    """
    mantissa, exponent = f"{value!r}e".split("e")[:2]
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0")
    if len(digits) == 1:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return mantissa.replace(".", "").rstrip("0"), int(exponent)
    point = len(whole) if whole != "0" else len(fraction.lstrip("0")) - len(fraction)
    return digits, point - 1 + int(exponent or 0)


def json_array(elements: list[str]) -> str:
    """Elements that are JSON already."""
    return f"[{','.join(elements)}]"


def json_object(members: list[tuple[str, str]]) -> str:
    """Names that need no escaping, and values that are JSON already."""
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"
