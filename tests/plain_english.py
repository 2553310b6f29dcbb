"""Sentences of pages, man pages and printed texts, and the patterns that plain English avoids.

A page is a list of `Sentence`: text as a person reads it, with the place it has in its file. Code,
examples, headings and generated rows are not sentences. Text of another kind joins by a function
that gives sentences: see `markdown`, `manual` and `printed`.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CODE = "\u2042"  # stands for a name, an option, a path or a figure in code
_INLINE_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)[\"')*]*\s+(?=[\"'(*]*(?:[A-Z0-9\u2042]|eoctl\b))"
)
_WORD = re.compile(rf"(?=[\d.:,/-]*[{CODE}a-zA-Z])[{CODE}\w][\w{CODE}'./=-]*")  # no bare figure
_NAMES_IN_A_ROW = re.compile(rf"{CODE}(?:,? (?:and |or )?{CODE})+")
_LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_MACRO = re.compile(r"^\.\s*([A-Z][A-Za-z]) ?(.*)$")
# Macros of mdoc that are words of a sentence; all others end it.
_NAMES = {
    "Fl",
    "Ar",
    "Cm",
    "Pa",
    "Ev",
    "Dv",
    "Li",
    "Ql",
    "Va",
    "Er",
    "Nm",
    "Xr",
    "Ic",
    "Sq",
    "Lk",
    "Sx",
    "Vt",
    "Fn",
}
_TEXT = {"Em", "Sy", "Dq", "Pq", "No"}
_SKIPPED_SECTIONS = {"SYNOPSIS", "SEE ALSO", "NAME"}
# Options and examples of the help, which code has.
_FROM_CODE = re.compile(
    r'\.\\" (?:Those|The examples) of the help, written .*?(?=^\.\\" End |^\.Sh )',
    re.DOTALL | re.MULTILINE,
)
_LABEL = re.compile(r"[A-Z][a-z]+")
_DIRECTIVE = re.compile(r"#!|# ?(?:type|noqa|ruff|fmt|mypy|shellcheck)\b")
# Parts of a docstring in Google's form.
_SECTION = re.compile(r"^(?:Args|Attributes|Raises|Returns|Yields):$", re.MULTILINE)
_ITEM = re.compile(r"^ {4}(?=[\w*`][\w*`, .]*: )", re.MULTILINE)
_NO_FIRST_LINE = re.compile(r"(?:What|Whether|Those|Who|Whose|How|Where|When|Which|That|If)\b")


# What no text says -> what it says instead.
PATTERNS = {
    r"(?:^|[;:(,] )[Ww]ho(?:ever)? (?!.*\?)(?:\w+)": "anyone who, the operator who",
    r"(?i)\b(?:for|of|by|to|than|from|with|and|or|that|since|if|where|what) who(?:ever)?\b": "anyone who",
    r"^What (?!.*[?:]$)": "a noun",
    r"\bwhat (?:is there|goes|stands|lies|stays|comes|befalls|is gone|it has not)\b": "a noun",
    r"\b(?:of|beside|below|behind|above) what\b": "a noun",
    r"\bthere twice\b": "duplicate",
    r"\banother one\b|\b(?:its|their) own one\b": "repeat the noun",
    r"\bthose (?:that|which|who|of)\b|^Those\b": "repeat the noun",
    r"\b(?:an?|the|this|such|its|older|newer|last|larger|smaller) (?:[a-z]+ )?ones?(?=[.,;:)]| (?:that|which|who"
    r"|is|was|has|of|in|to|from|with|and|or|for|before|after)\b|$)": "repeat the noun",
    r"\bthat of\b": "repeat the noun",
    r"^Where [^,?]*,": "If",
    r"\bas long as no(?:t|body|thing)?\b": "until",
    r"\b(?:has|have|had) not(?= (?:the|an?|all|any|it|its|what)\b|[.,;:)]|$)": "does not have",
    r"\b(?:is|are|was) not known\b|\bunknown to\b": "unknown, not available",
    r"\bnot yet known\b": "unknown",
    r"\b(?:un)?told\b|\bfore(?:tell|told)\w*\b|\btells?\b(?! apart)|\btelling\b": "report, print, say; predict",
    r"\bcondemn\w*\b": "report",
    r"\bdeeds?\b": "apply",
    r"\bway back\b|\bgo back\b": "undo",
    r"\bh(?:o|e)ld\w* (?:\w+ ){0,4}against\b": "compare with",
    r"\bholds? (?:\w+ ){0,4}back\b|\bheld back\b": "block",
    r"\bask(?:s|ed|ing)? for\b": "require, request",
    r"\bcourses?\b(?! of course)": "scenario, failure sequence",
    r"\bplay(?:s|ed|ing)? (?:a|an|the|back|in|by)\b|\b(?<!re)played\b": "simulate",
    r"\bbr(?:ing|ings|ought) (?:in|over)\b": "import",
    r"\bcuts?\b|\bcutting\b": "truncate, split, isolate",
    r"\bmend(?:s|ed|ing)?\b": "repair",
    r"\b(?:take|took|taken|takes|taking) (?:\w+ ){0,3}back\b": "undo",
    r"\bpassed over\b|\bpasses over (?:it|them)\b": "skip",
    r"\bheld offsets?\b|\bholds? (?:the |its )?(?:last stable offset|LSO)\b": "block",
    r"\btakes? away\b|\btaken away\b": "remove",
    r"\bgo(?:es)? away\b": "is removed",
    r"\b(?:the|this|each|every|first|same|wrong|such a|one|last|a|its|next) calls?\b(?! to)": "command, run",
    r"\bparts? (?:at|from)\b": "diverge",
    r"\banew\b|\bnevertheless\b|\bbefall\w*\b|\bamiss\b|\bhence\b|\bthereof\b|\bwhence\b|\bnought\b": "a plain word",
    r"\b(?:in|on) (?:its|their) way\b|\bon the way\b": "in flight",
    r"\b\d{6,} s old\b": "days, hours",
    r"\bno longer\b|\bnow also\b|\bnowadays\b|\bfor a while\b": "what is, not what was",
    r"\bof course\b|\bneedless\b|\bsimply\b|\bjust\b|\bin short\b": "nothing",
}  # fmt: skip
# In paragraphs and lists alone: cells of a table list things.
PROSE_PATTERNS = {r";(?! see\b|$)": "a sentence of its own"}


def _compiled(patterns: dict[str, str]) -> dict[re.Pattern[str], str]:
    """Compile patterns. Without a capital of its own, a pattern also finds a sentence's first word."""
    return {
        re.compile(pattern, 0 if re.search("[A-Z]", pattern) else re.IGNORECASE): instead
        for pattern, instead in patterns.items()
    }


_COMPILED = _compiled(PATTERNS)
_OF_PROSE = _compiled(PROSE_PATTERNS)


class Sentence(NamedTuple):
    """A sentence of a file, or a cell or an item that is no sentence."""

    path: str
    line: int
    text: str
    is_prose: bool  # of a paragraph or a list, not of a table

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"

    @property
    def words(self) -> list[str]:
        """Its words; a piece of code is one, and so is a list of them."""
        return _WORD.findall(_NAMES_IN_A_ROW.sub(CODE, self.text))


def _split(path: str, line: int, text: str, *, is_prose: bool) -> Iterator[Sentence]:
    for part in _END.split(" ".join(text.split())):
        if part:
            yield Sentence(path, line, part, is_prose)


def _readable(text: str) -> str:
    return _LINK.sub(r"\1", _INLINE_CODE.sub(CODE, text)).replace("*", "").replace("<br>", ". ")


def markdown(path: str, text: str) -> Iterator[Sentence]:
    """Give the sentences of a page in Markdown."""
    lines, start, block = [*text.splitlines(), ""], 0, ""
    is_code = is_comment = False
    for number, raw in enumerate(lines, 1):
        line = raw
        if raw.startswith("```"):
            is_code = not is_code
            line = ""
        is_comment = is_comment or raw.startswith("<!--")
        is_left_out = is_code or is_comment or (raw.startswith("    ") and not block)
        is_comment = is_comment and "-->" not in raw
        if (
            is_left_out
            or not raw.strip()
            or raw.startswith(("#", "|", "```"))
            or _LIST_ITEM.match(raw)
        ):
            yield from _split(path, start, _readable(block), is_prose=True)
            block = ""
        if is_left_out or raw.startswith(("#", "```")):
            continue
        if raw.startswith("|"):
            for cell in _readable(raw).strip("|").split("|"):
                yield from _split(path, number, cell.strip(" -"), is_prose=False)
        elif line.strip():
            start = start if block else number
            block += " " + _LIST_ITEM.sub("", line)


def manual(path: str, text: str) -> Iterator[Sentence]:
    """Give the sentences of a page in mdoc."""
    section, start, block, is_display = "", 0, "", False
    text = _FROM_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, raw in enumerate([*text.splitlines(), ".Pp"], 1):
        macro = _MACRO.match(raw)
        name, rest = macro.groups() if macro else ("", "")
        if name == "Sh":
            section = rest
        is_display = name in {"Bd", "Dl", "D1"} or (is_display and name != "Ed")
        is_word = not macro or name in _NAMES | _TEXT
        if (is_display or not is_word) and block:
            yield from _split(path, start, block, is_prose=True)
            block = ""
        is_display = is_display and name not in {"Dl", "D1"}
        if is_display or not is_word or section in _SKIPPED_SECTIONS or raw.startswith('.\\"'):
            continue
        start = start if block else number
        block += " " + _of_mdoc(name, rest if macro else raw)


def _of_mdoc(name: str, text: str) -> str:
    text = (
        re.sub(r"\\f.|\\&", "", text).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
    )
    if name in _NAMES:
        last = re.search(r" ([.,;:)]+)$", text)
        return CODE + (last[1] if last else "")
    text = re.sub(r"\b(?:Cm|No|Fl|Ar|Pa|Va) ", "", text) if name in _TEXT else text
    text = re.sub(r"^(.*?)( [.,;:]+)?$", r"(\1)\2", text) if name == "Pq" else text
    return re.sub(r" ([.,;:)])", r"\1", text)


def printed(path: str, text: str) -> Iterator[Sentence]:
    """Give the sentences of the string constants of a module, without its docstrings.

    An f-string is one text, with `CODE` for each value. A constant without a space is a name, except
    a label ("Lost"), a branch of a conditional expression, and the verbs of an answer.
    """
    stack: list[ast.AST] = [ast.parse(text)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else CODE for each in node.values)
            yield from _split(path, node.lineno, "".join(map(str, parts)), is_prose=False)
            stack += [each for each in node.values if isinstance(each, ast.FormattedValue)]
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and (" " in node.value or _LABEL.fullmatch(node.value)):
                yield from _split(path, node.lineno, node.value, is_prose=False)
        else:
            for word in _single_words(node):
                yield from _split(path, word.lineno, word.value, is_prose=False)
            stack += [each for each in ast.iter_child_nodes(node) if not _is_docstring(each)]


def _single_words(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the words below a node that are printed, though they look like names."""
    found: list[ast.expr] = []
    if isinstance(node, ast.IfExp):
        found = [node.body, node.orelse]
    elif (
        isinstance(node, ast.keyword) and node.arg == "verbs" and isinstance(node.value, ast.Tuple)
    ):
        found = node.value.elts
    for each in found:
        if isinstance(each, ast.Constant) and re.fullmatch(r"[a-z]+", str(each.value)):
            yield each


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def docstrings(text: str) -> Iterator[tuple[int, str, ast.AST]]:
    """Give the line, the text and the node of each docstring of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node, clean=False)
            if found is not None:
                yield node.body[0].lineno, inspect.cleandoc(found), node


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Give the line and the text of each comment; lines of comment that follow each other are one."""
    start, last, block = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line, is_whole = token.start[0], token.line.lstrip().startswith("#")
        if not (is_whole and line == last + 1):
            yield start, block
            start, block = line, ""
        block += " " + token.string.lstrip("# ")
        last = line if is_whole else -1
    yield start, block


def documented(path: str, text: str) -> Iterator[Sentence]:
    """Give the sentences of the docstrings and comments of a module. A comment is no prose."""
    for line, doc, _ in docstrings(text):
        doc = _ITEM.sub("- ", _SECTION.sub("", doc)).replace("``", "`")  # noqa: PLW2901
        yield from (each._replace(line=line + each.line - 1) for each in markdown(path, doc))
    for line, comment in _comments(text):
        yield from _split(path, line, _readable(comment), is_prose=False)


def unlike_a_first_line(text: str) -> Iterator[tuple[int, str]]:
    """Give the line and the text of docstrings that begin as a question or without a noun."""
    for line, doc, _ in docstrings(text):
        first = doc.partition("\n\n")[0]
        if _NO_FIRST_LINE.match(first) or first.rstrip('"').endswith("?"):
            yield line, first


def hits(sentences: Iterable[Sentence], allowed: Iterable[str] = ()) -> list[str]:
    """Return what sentences say that plain English does not, and what to say instead."""
    found = []
    for each in sentences:
        text = each.text
        for name in allowed:
            text = text.replace(name, CODE)
        found += [
            f"{each.path}:{each.line}: {match[0]!r}, say {instead}: {each.text}"
            for pattern, instead in (_COMPILED | (_OF_PROSE if each.is_prose else {})).items()
            if (match := pattern.search(text))
        ]
    return found


def syllables(word: str) -> int:
    """Return about how many syllables an English word has; a piece of code counts as one."""
    plain = re.sub(r"[^a-z]", "", word.lower())
    plain = re.sub(r"(?:[^laeiouy]es|[^aeioutd]ed|[^laeiouy]e)$", "", plain) or plain
    return max(1, len(re.findall(r"[aeiouy]+", plain)))


def reading_ease(sentences: Iterable[Sentence]) -> float:
    """Return Flesch's reading ease of the paragraphs and lists."""
    prose = [each.words for each in sentences if each.is_prose]
    words = [word for each in prose for word in each]
    by_word = sum(map(syllables, words)) / len(words)
    return 206.835 - 1.015 * len(words) / len([each for each in prose if each]) - 84.6 * by_word
