"""Foreign text is shown as it is: nothing in it is obeyed by a terminal, by markdown or by plotly."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.escape import MOST_CHARACTERS, for_markdown, for_plotly, printable, say

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])  # an implementation that is not streamlit's
LINKED = re.compile(r"https?://|www\.|\w@\w", re.IGNORECASE)  # what GitHub's markdown, as streamlit's, makes a link of
HOSTILE = [
    "![x](http://evil.example/x.png)",
    "[x](http://evil.example)",
    "<img src=http://evil.example/x.png onerror=alert(1)>",
    "<http://evil.example>",
    "http://evil.example and www.evil.example and me@evil.example",
    "``![x](http://evil.example/x.png)`",
    "`a` ![x](y) ``b` c` ![x](y)",
    "\\![x](http://evil.example/x.png)\\",
    "`code`http://evil.example`![x](y)",
    ":red[x] :material/home: $x$ ~~y~~ **z** _u_ &lt; &#60;",
    "a\n\n# heading\n\n- list\n\n| a |\n|---|\n",
    "[x]: http://evil.example\n\n[x]",
]


@given(st.text(alphabet="`![]()<>*_:/@\\$&#|~{}^-=+ \n\x1bahtpw.1", max_size=40))
@example("")
def test_markdown_shows_any_text_as_it_is(text: str) -> None:
    tokens = [inner for token in MARKDOWN.parseInline(for_markdown(text)) for inner in token.children or []]
    assert {token.type for token in tokens} <= {"text", "code_inline"}
    seen = "".join(token.content for token in tokens)
    assert _bare(seen) == _bare(printable(text))
    assert not any(LINKED.search(token.content) for token in tokens if token.type == "text")


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_active_comes_of_hostile_text(text: str) -> None:
    test_markdown_shows_any_text_as_it_is.hypothesis.inner_test(text)  # type: ignore[attr-defined]
    html = MARKDOWN.render(f"**{for_markdown(text)}**")
    assert not re.search(r"<(?!/?(p|strong|code)>)", html), html


def _bare(text: str) -> str:
    """Without blanks and backticks, which markdown takes for the ends of code."""
    return re.sub(r"[\s`]", "", text)


def test_code_in_a_message_stays_code() -> None:
    assert for_markdown("train it with `--snapshots 12`, [now]") == r"train it with `--snapshots 12`, \[now\]"
    assert for_markdown("counter=../../etc/passwd, step=-1") == "counter=../../etc/passwd, step=-1"


def test_long_text_is_cut() -> None:
    assert len(for_markdown("x" * 10**6)) == len(for_plotly("x" * 10**6)) == MOST_CHARACTERS


def test_a_terminal_gets_nothing_that_it_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    say("\x1b[2J\x9b31m\r\b\x07 a\nb \u202eabc \udcff é ✓")
    assert capsys.readouterr().out == "\\x1b[2J\\x9b31m\\r\\x08\\x07 a\\nb \\u202eabc \\udcff é ✓\n"


@given(st.text())
def test_printable_text_is_printable_and_can_be_encoded(text: str) -> None:
    assert printable(text).isprintable()
    printable(text).encode()
    assert printable(printable(text)) == printable(text)


def test_plotly_reads_no_tag_entity_or_template() -> None:
    assert for_plotly("<a href='x'>&lt;</a> %{customdata}") == "&lt;a href='x'>&amp;lt;&lt;/a> %&#123;customdata}"
