import pytest

from lapwing.report._markdown import to_html


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", ""),
        ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
        ("# A\ntext\n## B", "<h1>A</h1><p>text</p><h2>B</h2>"),
        ("#no heading", "<p>#no heading</p>"),
        (
            "- a\n- b\n  more of b\n\n  and a paragraph\n- c\nafter",
            "<ul><li>a</li><li>b<br>more of b<p>and a paragraph</p></li><li>c</li></ul><p>after</p>",
        ),
        ("    code <b>\n      indented", "<pre>code &lt;b&gt;\n  indented</pre>"),
        ("```\n# not a heading\n\n- x\n```\nafter", "<pre># not a heading\n\n- x</pre><p>after</p>"),
        ("```\nnever closed", "<pre>never closed</pre>"),
        ("`**not bold**` **bold**", "<p><code>**not bold**</code> <strong>bold</strong></p>"),
        ("1 * 2 ** 3", "<p>1 * 2 ** 3</p>"),
        ("[click](javascript:alert(1))", "<p>[click](javascript:alert(1))</p>"),
        ("![a](b.png)", "<p>![a](b.png)</p>"),
    ],
)
def test_markdown_becomes_html(text: str, made: str):
    assert to_html(text) == made


def test_a_table():
    made = to_html("| setting | value |\n|---|---|\n| a \\| b | `1` |\n\ntext")
    assert made == (
        '<div class="wide"><table><thead><tr><th>setting</th><th>value</th></tr></thead>'
        "<tr><td>a | b</td><td><code>1</code></td></tr></table></div><p>text</p>"
    )
    assert to_html("| a |") == '<div class="wide"><table><tr><td>a</td></tr></table></div>'


def test_pictures_are_what_the_caller_gives():
    known = {"pictures/a.png": 'data:"x"'}
    made = to_html('see ![A "1"](pictures/a.png) and ![b](other.png)', known.get)
    assert made == ('<p>see <img alt="A &quot;1&quot;" src="data:&quot;x&quot;"> and ![b](other.png)</p>')


@pytest.mark.parametrize(
    "frame",
    ["{}", "# {}", "- {}", "- a\n  {}", "| {} |", "    {}", "```\n{}\n```", "`{}`", "**{}**", "![{}](a.png)"],
)
@pytest.mark.parametrize(
    "nasty", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "&lt;"]
)
def test_nothing_in_a_text_becomes_html(frame: str, nasty: str):
    made = to_html(frame.format(nasty), lambda _: "data:")
    assert nasty not in made
    for word in ("<script", "<!--", "<img src=x"):
        assert word not in made
