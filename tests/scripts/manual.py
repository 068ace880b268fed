"""manual.py HEED: heed has a manual page for itself and each command, with every option of the help and no other.
groff and mandoc, where they are installed, find nothing wrong with them."""
import re
import shutil
import subprocess
import sys

import command_help

heed = sys.argv[1]
ROFF = {r"\-": "-", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\[u2026]": "…", r"\e": "\\", r"\&": ""}
LINTS = (("groff", "-man", "-ww", "-z"), ("mandoc", "-T", "lint", "-W", "warning"))


def plain(roff):
    return re.sub(r"\\(?:\(..|\[\w+\]|.)", lambda escape: ROFF[escape.group()], re.sub(r"\\f[BIR]", "", roff))


def words(text):
    """Without the hanging layout of the help, and without its line breaks."""
    return " ".join(text.split())


def check(command, page):
    title = "heed-" + command if command else "heed"
    assert page.isascii(), f"the page of {title} is not ASCII, which each roff takes"
    assert words(plain(page)).startswith(".TH " + title.upper()), page[:80]
    shown = command_help.options(heed, command)
    entries = re.findall(r"^\.TP\n(.*)\n", plain(page), re.MULTILINE)
    in_page = {entry for entry in entries if entry.startswith("-")}
    expected = {(", ".join(names) + " " + value).strip() for names, value in shown.items()}
    assert in_page == expected, f"{title}: only in one of page and help: {sorted(in_page ^ expected)}"
    help_text = words(command_help.full_help(heed, command))
    for paragraph in re.findall(r"^\.TP\n-.*\n((?:[^.].*\n)+)", plain(page), re.MULTILINE):
        assert words(paragraph) in help_text, f"{title}: the help does not say '{words(paragraph)}'"
    examples = page.partition(".EX\n")[2].partition(".EE\n")[0]
    assert plain(examples) in command_help.full_help(heed, command), f"{title}: other examples than the help's"
    for lint in filter(lambda one: shutil.which(one[0]), LINTS):
        told = subprocess.run(lint, input=page, capture_output=True, text=True)
        # A date would differ from build to build.
        lines = [line for line in (told.stdout + told.stderr).splitlines() if "missing date" not in line]
        assert not lines, f"{lint[0]} says of {title}: {lines}"


commands = command_help.commands(heed)
pages = {command: command_help.output_of(heed, "--man", command or "heed") for command in ["", *commands]}
for command, page in pages.items():
    check(command, page)
for command in commands:
    assert f"heed-{command}" in plain(pages[""]), f"the page of heed does not list heed-{command}"
for lint in LINTS:
    print(lint[0], "checked them" if shutil.which(lint[0]) else "is not installed")
print(f"{len(pages)} pages, {sum(len(command_help.options(heed, command)) for command in pages)} options")
