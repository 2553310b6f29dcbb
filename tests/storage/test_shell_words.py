"""Words as they are pasted: a shell gets them back, and a terminal acts on none of them."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import as_argument, call_text, pasted, printable_call, quoted
from tests.drawn import examples

NAMES = [
    "plain-0",
    "two words",
    'it\'s "$HOME" `id` \\ !',
    "a\x1b[31mred\x1b]0;title\x07",
    "two\nlines\t",
    "\u202ethgir\u200f",
    "\x9b31m\xa0\u200b",
    "日本語e\u0301",
    os.fsdecode(b"bad\xff\xfe'\\"),
    "\x1b'12",
]


def test_bash_gets_the_words_back() -> None:
    text = call_text(NAMES)
    assert text.isprintable()
    script = f"printf '%s\\0' {text}".encode()
    got = subprocess.run(["bash"], input=script, capture_output=True, check=True).stdout
    assert got.split(b"\0")[:-1] == [os.fsencode(each) for each in NAMES]


@settings(max_examples=examples(100))
@given(st.text(max_size=20))
def test_all_of_it_can_be_printed(word: str) -> None:
    assert quoted(word).isprintable()
    if word.isprintable():
        assert shlex.split(quoted(word)) == [word]
    call = f"eoctl check {shlex.quote(word)}"
    assert printable_call(call) == call_text(["eoctl", "check", word])


@pytest.mark.parametrize("text", ["it's\x1b", "'\n"])
def test_what_is_no_call_stays(text: str) -> None:
    assert printable_call(text) == text


def test_a_path_is_no_option() -> None:
    assert as_argument("-x") == "./-x"
    assert pasted("--apply") == "./--apply"
    assert pasted("a/-x") == "a/-x"
