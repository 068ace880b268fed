"""completion.py bash|zsh|fish HEED SOURCE: the shell completes heed's commands, options and values as the help lists them.
Exits with 77 if the shell is not installed."""
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import command_help

shell, heed, source = sys.argv[1:]
if not shutil.which(shell):
    print(f"{shell} is not installed")
    sys.exit(77)

script = Path(tempfile.mkdtemp()) / ("heed." + shell)
script.write_text(command_help.output_of(heed, "--completion", shell))
commands = command_help.commands(heed)
models = sorted(folder.name for folder in (Path(source) / "models").iterdir() if folder.is_dir())


def wanted():
    """Command lines whose last word is to be completed, each with all that is to be offered for it."""
    lines = {("",): commands}
    for command in ["", *commands]:
        begin = (command,) if command else ()
        lines[begin + ("--",)] = [name for names in command_help.options(heed, command) for name in names if name[:2] == "--"]
        for option, values in command_help.choices(heed, command).items():
            lines[begin + (option, "")] = values
    for line in (("look", "--model", ""), ("explain", "--model", ""), ("generate", "")):
        lines[line] = models
    return lines


def check(offered):
    for (line, values), found in zip(wanted().items(), offered):
        assert sorted(found) == sorted(values), f"heed {' '.join(line)}: {shell} offers {found}; {values} was expected"
    print(f"{shell} completed {len(wanted())} command lines")


def run_bash():
    lines = [f"source {script}"]
    for line in [*wanted(), ("look", "--kernel", "=", "f"), ("look", "--kernel", "=")]:
        words = " ".join(f"'{word}'" for word in ("heed", *line))
        lines.append(f"COMP_WORDS=({words}); COMP_CWORD={len(line)}; _heed; echo \"${{COMPREPLY[*]}}\"")
    done = subprocess.run(["bash", "-u"], input="\n".join(lines), capture_output=True, text=True, cwd=script.parent)
    assert done.returncode == 0 and not done.stderr, done.stderr
    offered = [line.split() for line in done.stdout.splitlines()]
    assert offered[-2:] == [["fused"], ["automatic", "reference", "fused"]], offered[-2:]
    check([[word for word in found if word != script.name] for found in offered])
    called = typed(["bash", "--norc", "--noprofile", "-i"], f"source {script}", ["heed loo\t--kern\tfu\t"])
    assert called == ["look --kernel fused"], called


def run_fish():
    lines = [f"source {script}"]
    for line in wanted():
        lines.append(f"complete -C 'heed {' '.join(line)}'; echo END")
    home = {**os.environ, "HOME": str(script.parent), "XDG_CONFIG_HOME": str(script.parent)}
    done = subprocess.run(["fish", "--no-config"], input="\n".join(lines), capture_output=True, text=True, cwd=script.parent, env=home)
    assert done.returncode == 0 and not done.stderr, done.stderr
    answers = done.stdout.split("END\n")[:-1]
    check([[line.split("\t")[0] for line in answer.splitlines() if line.split("\t")[0] not in (script.name, ".config/", ".local/", "fish/")]
           for answer in answers])


def run_zsh():
    """By key presses, because zsh completes nowhere else."""
    setting_up = f"autoload -Uz compinit; compinit -D -u; source {script}"
    lines = ["heed loo\t--kern\tfu\t", "heed generate stor\t", *(f"heed {command} --hel\t" for command in commands)]
    called = typed(["zsh", "-f", "-i"], setting_up, lines)
    expected = ["look --kernel fused", "generate stories", *(f"{command} --help" for command in commands)]
    assert called == expected, called
    text = script.read_text()
    for command in commands:
        part = text.partition(f"\n    {command})\n")[2].partition(" ;;\n")[0]
        for names in command_help.options(heed, command):
            for name in names:
                assert f"{name}[" in part, f"zsh does not know heed {command} {name}"
    print(f"zsh completed {len(lines)} command lines")


def typed(start, setting_up, lines):
    """What heed is called with after each of these lines of keys in an interactive shell."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="dumb", HOME=str(script.parent), PS1="$ ")
        os.execvp(start[0], start)
    called = []

    def printed(what):
        seen, end = b"", time.monotonic() + 60
        while what not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096)
        assert what in seen, f"{shell} printed {seen.decode(errors='replace')}"
        return seen.decode()

    # The echo of these lines must not look like what they print.
    os.write(terminal, f"heed() {{ printf 'g%s:%s.\\n' ot \"$*\"; }}; {setting_up}; printf 'rea%s\\n' dy\n".encode())
    printed(b"ready")
    for line in lines:
        os.write(terminal, line.encode() + b"\n")
        called.append(" ".join(printed(b".\r\n").partition("got:")[2].partition(".")[0].split()))
    os.write(terminal, b"exit\n")
    os.close(terminal)
    os.waitpid(process, 0)
    return called


try:
    {"bash": run_bash, "zsh": run_zsh, "fish": run_fish}[shell]()
finally:
    shutil.rmtree(script.parent)
