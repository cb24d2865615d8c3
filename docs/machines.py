"""Puts the machines of the library into docs/machines.md and draws them to docs/pictures.

`python docs/machines.py` writes the page and the pictures; a test compares the page with what this script makes.
"""

from pathlib import Path

from lapwing import dmm, report

PAGE = Path(__file__).with_name("machines.md")
PICTURES = Path(__file__).with_name("pictures")
BEGIN, END = "<!-- made by docs/machines.py -->\n", "<!-- end of the machines -->\n"


def section(machine: dmm.LibraryMachine) -> str:
    """A machine: what it answers, its drawing, its neurons and links, and its examples."""
    lines = [f"### {machine.name}", "", machine.about[0].upper() + machine.about[1:] + ".", ""]
    lines += [f"![{machine.name}](pictures/machine-{machine.name}.png)", ""]
    lines += ["```", dmm.listing(machine.build()), "```", ""]
    lines += ["| text | answers |", "|---|---|"]
    for text, answers in (machine.examples or {}).items():
        cells = "<br>".join(f"{field}: `{numbers.replace('|', '→')}`" for field, numbers in answers.items())
        lines.append(f"| {f'`{text}`' if text else 'reads nothing'} | {cells} |")
    return "\n".join(lines) + "\n\n"


def page(text: str) -> str:
    """The page with the machines in their place."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    handmade = [each for each in dmm.library().values() if not each.published]
    return before + BEGIN + "\n" + "".join(map(section, handmade)) + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, each in dmm.library().items():
        if not each.published:
            report.machine_picture(each.build(), PICTURES / f"machine-{name}.png")
