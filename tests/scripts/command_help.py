"""The commands and options of heed, read from what --help prints."""
import re
import subprocess


def output_of(heed, *arguments):
    return subprocess.run([heed, *arguments], capture_output=True, text=True, check=True).stdout


def commands(heed):
    listed = output_of(heed, "--help").partition("\nCommands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\w+)", listed, re.MULTILINE)


def full_help(heed, command):
    """What --help-all prints, or --help where that is all; "" is heed itself."""
    words = [command] if command else []
    text = output_of(heed, *words, "--help")
    return output_of(heed, *words, "--help-all") if "--help-all lists all" in text else text


def options(heed, command):
    """The option names of a command, such as ("-h", "--help"), each with its value's placeholder or ""."""
    found = re.findall(r"^  (-[^ ,]+(?:, -[^ ,]+)*)(?: (\S.*?))?(?:  .*)?$", full_help(heed, command), re.MULTILINE)
    return {tuple(names.split(", ")): value for names, value in found}


def choices(heed, command):
    """The values of options that take one of several words."""
    return {names[-1]: value.split("|") for names, value in options(heed, command).items()
            if re.fullmatch(r"[a-z0-9-]+(\|[a-z0-9-]+)+", value)}
