#!/usr/bin/env python3
"""abi.py [--write] VERSION HEADER LIBRARY: compares the C interface with that of the last release.

The list abi/MAJOR.MINOR (abi/MAJOR from 1.0 on) has the exported functions with the types of their parameters, the
structs with the offset and size of each member, and the values of enumerators and constants. All of it must hold: a
program that was built with the release runs with today's library. More may be there. A struct that begins with
struct_size may have further members at its end. --write makes the list anew, for a release.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

write = "--write" in sys.argv
version, header, library = [argument for argument in sys.argv[1:] if argument != "--write"]
parts = version.split(".")
interface = ".".join(parts[:2]) if parts[0] == "0" else parts[0]
listed = Path(__file__).resolve().parent / "abi" / interface

text = re.sub(r"//.*|/\*.*?\*/", "", Path(header).read_text())


def types_of(declaration):
    """A function's declaration without the names of its parameters."""
    result, parameters = re.fullmatch(r"(.*?)\((.*)\)", " ".join(declaration.split())).groups()
    types = [re.sub(r"(?<=[\s*])\w+(\[\d*\])?$", r"\1", one.strip()).strip() if one.strip() != "void" else "void"
             for one in parameters.split(",")]
    return f"function {result}({', '.join(types)})"


def members_of(body):
    names = []
    for line in filter(None, map(str.strip, body.split(";"))):
        names += [re.search(r"(\w+)(\[\w+\])?$", one.strip())[1] for one in line.split(",")]
    return names


def measured():
    """The lines of the header's structs, enumerators and constants, as the compiler lays them out."""
    printed = []
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\}", text, re.DOTALL):
        printed.append((f"struct {name} size %ld", f"sizeof({name})"))
        for member in members_of(body):
            printed.append((f"member {name}.{member} offset %ld size %ld",
                            f"offsetof({name}, {member}), (long)sizeof((({name}*)0)->{member})"))
    enumerators = re.findall(r"\b(HEED_[A-Z0-9_]+)\b", " ".join(re.findall(r"typedef enum \w+ \{(.*?)\}", text, re.DOTALL)))
    constants = re.findall(r"^#define (HEED_\w+) +\d", text, re.MULTILINE)
    printed += [(f"value {name} = %ld", name) for name in dict.fromkeys(enumerators + constants)]
    lines = "".join(f'  printf("{form}\\n", (long){values});\n' for form, values in printed)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        program.with_suffix(".c").write_text(
            f'#include <stddef.h>\n#include <stdio.h>\n#include "{Path(header).resolve()}"\nint main(void) {{\n{lines}  return 0;\n}}\n')
        subprocess.run([os.environ.get("CC", "cc"), "-std=c99", f"{program}.c", "-o", str(program)], check=True)
        return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


def current():
    exported = re.findall(r" T (heed_\w+)$", subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                                                           capture_output=True, text=True).stdout, re.MULTILINE)
    functions = [types_of(found) for found in re.findall(r"^HEED_C_API ([^;]+);", text, re.MULTILINE)]
    shown = [line for line in functions if re.search(r"(\w+)\(", line)[1] in exported]
    for line in functions:
        if line not in shown:
            sys.exit(f"{Path(library).name} does not export what {Path(header).name} declares: {line}")
    return sorted(shown) + measured()


def grew(line, lines):
    """Whether a struct is larger than listed, and may be."""
    name, size = re.fullmatch(r"struct (\w+) size (\d+)", line).groups()
    now = next((int(found[1]) for one in lines if (found := re.fullmatch(rf"struct {name} size (\d+)", one))), 0)
    return now > int(size) and f"member {name}.struct_size offset 0 size 8" in lines


lines = current()
if write:
    listed.parent.mkdir(exist_ok=True)
    listed.write_text("\n".join(lines) + "\n")
if not listed.exists():
    sys.exit(f"there is no list of the interface {interface}; at its first release, abi.py --write makes it")
gone = [line for line in listed.read_text().splitlines()
        if line not in lines and not (line.startswith("struct ") and grew(line, lines))]
if gone:
    sys.exit(f"programs that were built with heed {interface} would break; these do not hold any more:\n" + "\n".join(gone))
print(f"{len(lines)} lines; all of {interface} hold")
