"""Text as Java reads and writes it: UTF-8 of keys and values, small text files, integers, JSON."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from storage.errors import CorruptError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.limits import Buf


# For Java an encoded surrogate is one malformed piece, for Python two or three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_ONE_BAD_BYTE = b"\xff"
_MAX_CONTINUATION_BYTES = 3


def kafka_text(data: bytes) -> str:
    """Decode bytes as java.lang.String does: each malformed piece becomes one U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_ONE_BAD_BYTE, data).decode(errors="replace")


def kafka_text_pieces(data: bytes, piece_bytes: int) -> Iterator[str]:
    """Yield the text of many bytes in pieces that divide no character.

    A malformed piece ends before a byte that continues no character. At most three bytes continue a
    piece.
    """
    start = 0
    while start < len(data):
        end = min(start + piece_bytes, len(data))
        for _ in range(_MAX_CONTINUATION_BYTES + 1):
            if end == len(data) or data[end] & 0xC0 != 0x80:
                break
            end -= 1
        else:
            end += _MAX_CONTINUATION_BYTES + 1
        yield kafka_text(data[start:end])
        start = end


# -- small text files as Java reads them: UTF-8 lines, integers, one JSON object.
#
# If a broker accepts a text, so does eoctl. If a broker refuses it, eoctl raises a `FormatError`
# with line and position. `unusual_text` (check id TXT-1) finds accepted files that a broker would
# have written differently (blanks, line ends, trailing text). They are harmless to the broker, and
# a sign of another writer or of a flipped bit.


# Java's \s is ASCII only. Two of its six characters end a line.
BLANKS = re.compile(r"[ \t\x0b\f]+")
# parseInt takes one UTF-16 unit at a time, so it accepts no digit beyond the basic plane.
INTEGER = re.compile(r"([+-]?)(\d+)")
LAST_BASIC_PLANE = "\uffff"
MAX_INT64_DIGITS = 19

SHOWN_CHARS = 40
# Jackson stops at 1000. No file of a broker nests deeper than 3.
MAX_JSON_DEPTH = 64
JSON_BLANKS = " \t\r\n"


class NotANumberError(CorruptError):
    """A field that must be a decimal integer is not.

    This is a class of its own because a broker raises another class of error for it, with other
    consequences (REC-2).
    """


class JavaLine(NamedTuple):
    """One line without its end."""

    text: str
    pos: int  # of its first byte
    number: int  # from 1


def shown(text: str) -> str:
    """Quote `text` for an error, truncated to a sensible length."""
    return repr(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")


def decode_utf8(data: Buf, *, check_id: str, pos: int = 0) -> str:
    """Decode strictly. `pos` is the place of `data` in the file.

    Raises:
        CorruptError: with the position of the first byte that is not UTF-8.
    """
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise CorruptError(
            "not UTF-8",
            check_id=check_id,
            pos=pos + error.start,
            expected="UTF-8",
            found=f"0x{data[error.start]:02x}",
        ) from None


def parse_lines(buf: Buf, *, check_id: str) -> list[JavaLine]:
    r"""Split like BufferedReader.readLine at \n, \r or \r\n. The last line end may be missing.

    Raises:
        CorruptError: not UTF-8.
    """
    lines = []
    pos = 0
    for number, raw in enumerate(bytes(buf).splitlines(keepends=True), 1):
        text = decode_utf8(raw, check_id=check_id, pos=pos).rstrip("\r\n")
        lines.append(JavaLine(text, pos, number))
        pos += len(raw)
    return lines


def split_fields(text: str, separator: re.Pattern[str] = BLANKS) -> list[str]:
    """Split like Java's Pattern.split: keep a leading empty field, drop trailing empty fields."""
    fields = separator.split(text)
    if len(fields) > 1:
        while fields and not fields[-1]:
            fields.pop()
    return fields


def parse_integer(text: str, *, max_value: int) -> int | None:
    """Parse an integer as Integer.parseInt or Long.parseLong. Returns None for anything else.

    A number that is out of range gives None too.

    Args:
        text: an optional sign and digits of any script, no blanks.
        max_value: INT32_MAX or INT64_MAX. The minimum is -max_value - 1.
    """
    match = INTEGER.fullmatch(text)
    if match is None or max(text) > LAST_BASIC_PLANE:
        return None
    sign, digits = match.groups()
    # Java accepts any number of leading zeros. int() must not get a million digits.
    zeros = len(digits) - len(digits.lstrip("0"))
    if len(digits) - zeros > MAX_INT64_DIGITS:
        return None
    value = int(digits[zeros:] or "0")
    if sign == "-":
        value = -value
    return value if -max_value - 1 <= value <= max_value else None


def require_integer(text: str, what: str, line: JavaLine, *, max_value: int, check_id: str) -> int:
    """Parse an integer as `parse_integer` does, but raise an error for anything else.

    Raises:
        NotANumberError: located at the line.
    """
    value = parse_integer(text, max_value=max_value)
    if value is None:
        raise NotANumberError(
            f"line {line.number}: {what} is not a number of {max_value.bit_length() + 1} bits",
            check_id=check_id,
            pos=line.pos,
            expected="a decimal number",
            found=shown(text),
        )
    return value


def parse_json_object(text: str, *, check_id: str) -> dict[str, Any]:
    """Read the JSON object that `text` begins with, as Jackson's defaults do.

    Text after the object is ignored. The last value of a repeated key counts.

    Raises:
        CorruptError: no such object, nested deeper than 64 levels, or a number that is not finite
            or too long.
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    def finite(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise ValueError(f"{shown(digits)} is not a finite number")
        return value

    start = len(text) - len(text.lstrip(JSON_BLANKS))
    decoder = json.JSONDecoder(parse_constant=refuse, parse_float=finite)
    try:
        value, _end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        pos = len(text[: error.pos].encode(errors="surrogatepass"))
        raise CorruptError(f"not JSON: {error.msg}", check_id=check_id, pos=pos) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CorruptError(f"not JSON: {reason}", check_id=check_id, pos=start) from None
    if not isinstance(value, dict):
        raise CorruptError(
            "not a JSON object",
            check_id=check_id,
            pos=start,
            expected="an object",
            found=shown(text[start:]),
        )
    _limit_depth(value, check_id, start)
    return value


def encode_json(document: dict[str, Any]) -> bytes:
    """Write JSON as Jackson does: one line, no blanks, UTF-8, keys in their order."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # A lone surrogate has no UTF-8, but JSON can escape it.
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match.group()):04x}", text).encode()


def json_integer(
    document: dict[str, Any], key: str, *, max_value: int, check_id: str, line_pos: int = 0
) -> int:
    """Return a mandatory integer of a parsed object.

    Raises:
        CorruptError: the key is missing, its value is no integer or out of range.
    """
    if key not in document:
        raise CorruptError(f"{key} is missing", check_id=check_id, pos=line_pos)
    value = document[key]
    if type(value) is not int or not -max_value - 1 <= value <= max_value:
        raise wrong_type(key, value, f"an integer of {max_value.bit_length() + 1} bits", check_id)
    return value


def wrong_type(key: str, value: object, expected: str, check_id: str) -> CorruptError:
    """Return the error for a JSON value of another type than its key requires."""
    # repr of a huge integer fails, and of a huge list it is slow.
    is_short = isinstance(value, str | bool | float | None) or (
        isinstance(value, int) and value.bit_length() <= 128
    )
    return CorruptError(
        f"{key} has a value of the wrong type or size",
        check_id=check_id,
        pos=0,
        expected=expected,
        found=shown(str(value)) if is_short else f"a value of type {type(value).__name__}",
    )


def unusual_text(buf: Buf, written: bytes) -> list[FormatError]:
    """Compare a file that parses with the text that a broker writes for the same value (TXT-1).

    Args:
        buf: the file.
        written: the encoding of the value that was read from it.
    """
    data = bytes(buf)
    if data == written:
        return []
    common = min(len(data), len(written))
    pos = next((i for i in range(common) if data[i] != written[i]), common)
    return [
        CorruptError(
            "text that a broker reads but would not have written",
            check_id="TXT-1",
            pos=pos,
            expected=repr(written[pos : pos + SHOWN_CHARS]),
            found=repr(data[pos : pos + SHOWN_CHARS]),
        )
    ]


def _limit_depth(document: dict[str, Any], check_id: str, pos: int) -> None:
    """Refuse nesting that might exhaust the stack of json.dumps later."""
    level: list[Any] = [document]
    for _depth in range(MAX_JSON_DEPTH):
        containers = [value for value in level if isinstance(value, dict | list)]
        level = [
            child
            for value in containers
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise CorruptError("not JSON: nested too deeply", check_id=check_id, pos=pos)
