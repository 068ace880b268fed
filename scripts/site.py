#!/usr/bin/env python3
"""site.py HEED MINILM OUT: writes the site of the documents to OUT/site. scripts/site calls this with the right Python.

HEED is the command, MINILM the folder of all-MiniLM-L6-v2. The documents are copied to OUT/pages with these changes:

- A link to a file outside docs/ leads to a page that shows this file. A document is called by its title.
- A picture of a page of heed becomes the page itself; the page also follows the command that writes it.
- Nested lists take four spaces, and an escaped bar in a table's code loses its backslash, as MkDocs wants them.
"""
import html
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SENTENCE = "The king told the queen that she was ill."
# File, title, the command that writes it, and the picture in a document that it replaces.
PAGES = [
    ("life.html", "A trained model to type into", ["explain", "--model", "induction"], "page-living.png"),
    ("steps.html", "Every step of attention, and its story",
     ["explain", "Life is short, eat dessert first", "--heads", "4", "--causal"], "page-steps.png"),
    ("induction.html", "The heads of a model of two layers", ["look", "--model", "induction", *"to be or not to be or".split()],
     "page-map-dark.png"),
    ("minilm.html", "The 72 heads of MiniLM on a sentence", ["look", "--model", "MiniLM", SENTENCE], None),
]
# The first comment of a header describes the file. Three spaces begin a formula or code, for which Doxygen wants more.
DOXYFILE = r"""PROJECT_NAME = heed
INPUT_FILTER = "sed -E '1,/^#/s|^//|///|; 0,/^#/s|^#|/// @file\n#|; s|^( *)///   |\1///       |; s|et al\. |et al.\\ |g'"
RECURSIVE = YES
STRIP_FROM_PATH = include
STRIP_FROM_INC_PATH = include
EXCLUDE_SYMBOLS = *::detail
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = HEED_API= HEED_HIDDEN=
AUTOLINK_SUPPORT = NO
GENERATE_LATEX = NO
JAVADOC_AUTOBRIEF = YES
QUIET = YES
SHOW_USED_FILES = NO
HAVE_DOT = NO
"""
NAMESPACES = {
    "heed": "Attention that shows its weights: tensors, attention, masks, caches, reports, models.",
    "heed::masks": "Common masks.",
    "heed::io": "Files of tensors.",
    "heed::nn": "Layers, gradients and training.",
    "heed::distributed": "Attention and training over the ranks of MPI.",
}
# The first page of the C++ reference: the namespaces, and the names to begin with. The filter above ends at the #.
MAIN_PAGE = """//
#pragma once
/// @mainpage heed in C++
/// <a href="../cpp.html">Four recipes</a> (prefill, decoding with pages, a mask of your own, training) and
/// <a href="../reference/cpp.html">all headers</a> are pages of the book.
///
"""
BEGIN = {
    "heed::attention": "The call: the output of query, key and value, and what else is asked for.",
    "heed::Tensor": "Numbers with a shape; heed::TensorView reads those of others in place.",
    "heed::KvCache": "Keys and values of decoding.",
    "heed::make_report": "What attended to what, at any length.",
    "heed::load_model": "A folder of Hugging Face's, or a GGUF file.",
}
UNDOCUMENTED = re.compile(r"warning: (Member .*|Compound heed::dtype_of<.*) is not documented\.")
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".h": "c", ".c": "c", ".py": "python", ".sh": "bash", ".md": "markdown"}
BLOCK = re.compile(r"(^````.*?^````$|^```.*?^```$)", re.M | re.S)  # sources stand between four marks
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")  # its text may hold a picture


class Site:
    def __init__(self, heed, minilm, out):
        self.heed, self.minilm, self.out = heed, minilm, out
        self.pages = out / "pages"
        self.made = {}  # path in the project: path in the site
        self.headers = {}  # header or folder of headers: its page

    def page_of(self, path):
        """The page in the site that shows a file or folder of the project; None: there is none."""
        name = str(path.relative_to(ROOT))
        if name in self.headers:
            return self.headers[name]
        if path.parent == ROOT / "docs" and path.suffix == ".md":
            return path.name
        if ROOT / "docs" in path.parents:
            return str(path.relative_to(ROOT / "docs"))
        if name not in self.made:
            self.made[name] = f"files/{name}" + ("" if path.suffix == ".md" else "/README.md" if path.is_dir() else ".md")
            self.show(path, self.pages / self.made[name])
        return self.made[name]

    def show(self, path, page):
        """Writes a page for a file or folder that a document links to."""
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.name != "README.md" and (file.is_dir() or is_text(file)))
            text = f"# {path.relative_to(ROOT)}\n\n"
            if (path / "README.md").exists():
                text = (path / "README.md").read_text() + "\n\n"
            text += "\n".join(f"- [{file.name}]({file.name})" for file in files) + "\n"
            path /= "README.md"
        elif path.suffix == ".md":
            text = path.read_text()
        else:
            text = f"# {path.name}\n\n`{path.relative_to(ROOT)}`\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}````\n"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(self.changed(text, path, page))

    def changed(self, text, path, page):
        """The text of a document for the site."""
        def link(match):
            shown, (name, _, fragment) = LINK.sub(link, match[1]), match[2].partition("#")
            if not name or re.match(r"[a-z]+:", name):
                return f"[{shown}]({match[2]})"
            found = (path.parent / name).resolve()
            if found.suffix == ".md" and shown == found.name:
                shown = title_of(found)
            to = os.path.relpath(self.pages / self.page_of(found), page.parent)
            return f"[{shown}]({to}{'#' + fragment if fragment else ''})"

        def embedded(match):
            for name, title, _, picture in PAGES:
                if picture == Path(match[1]).name:
                    return frame(name, title, up)
            return match[0]

        def written(code):
            """The page that the last command of a block writes."""
            for name, title, _, _ in PAGES:
                if code.endswith(f" --html {name}\n```"):
                    return "\n\n" + frame(name, title, up)
            return ""

        up = os.path.relpath(self.pages, page.parent)
        parts = BLOCK.split(text)
        for i in range(1, len(parts), 2):
            parts[i] += written(parts[i])
        for i in range(0, len(parts), 2):
            parts[i] = re.sub(r"^(?:\[)?!\[[^\]]*\]\(([^)]*)\)(?:\]\([^)]*\))?$", embedded, parts[i], flags=re.M)
            parts[i] = LINK.sub(link, parts[i])
            parts[i] = re.sub(r"^\|.*$", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]),
                              parts[i], flags=re.M)
            parts[i] = indented(parts[i])
        return "".join(parts)

    def write_documents(self):
        for folder in ("figures", "pictures"):
            shutil.copytree(ROOT / "docs" / folder, self.pages / folder)
        for path in sorted((ROOT / "docs").glob("*.md")):
            self.show(path, self.pages / path.name)
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples"):
            self.page_of(ROOT / name)

    def write_pages(self):
        """The pages of heed, and one that shows all of them."""
        work = self.out / "work"
        work.mkdir()
        (work / "MiniLM").symlink_to(self.minilm.resolve())
        (self.pages / "live").mkdir()
        text = "---\nhide: [navigation, toc]\n---\n\n# Live pages\n\nheed wrote these pages. Each is one file, which opens from disk as well.\n"
        for name, title, arguments, _ in PAGES:
            self.run(arguments + ["--html", str((self.pages / "live" / name).resolve())], work)
            shown = " ".join(f"'{word}'" if " " in word else word for word in arguments)
            text += f"\n## {title}\n\n`heed {shown} --html {name}`\n\n{frame(name, title, '.')}\n"
        (self.pages / "live.md").write_text(text)

    def run(self, arguments, folder=ROOT):
        done = subprocess.run([self.heed, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"site.py: heed {' '.join(arguments)} said: {done.stderr}")
        return done.stdout

    def write_reference_of_the_command(self):
        text = "# Options of the command\n\n[The command line](../command.md) says how they work together.\n"
        helps = {"heed": self.run(["--help"])}
        for name in re.findall(r"^  ([a-z]+)  ", helps["heed"], re.M):
            both = [self.run([name, option]) for option in ("--help", "--help-all")] if name == "look" else [self.run([name, "--help"])]
            helps[f"heed {name}"] = max(both, key=len)
        for name, said in helps.items():
            text += f"\n## {name}\n\n````text\n{said.strip()}\n````\n"
        (self.pages / "reference" / "command.md").write_text(text)

    def write_reference_of_python(self):
        text = "# Names of Python\n\n[From Python](../python.md) says how these work together.\n"
        for module in ("heed", "heed.masks", "heed.nn", "heed.torch", "heed.transformers", "heed.onnx", "heed.distributed"):
            text += f"\n## {module}\n\n::: {module}\n    options:\n      heading_level: 3\n"
        (self.pages / "reference" / "python.md").write_text(text)

    def write_reference_of_cpp(self):
        """Doxygen's pages, and one that lists the headers. Prints how many members have no words."""
        tags, spaces = self.out / "tags.xml", self.out / "namespaces.hpp"
        listed = "".join(f"/// - @ref {name} : {words}\n" for name, words in {**NAMESPACES, **BEGIN}.items())
        spaces.write_text(MAIN_PAGE + listed + "\n" + "".join(f"/// {words}\nnamespace {name} {{}}\n" for name, words in NAMESPACES.items()))
        settings = DOXYFILE + f'INPUT = include "{spaces}"\nOUTPUT_DIRECTORY = "{self.out}"\nHTML_OUTPUT = pages/cpp\nGENERATE_TAGFILE = "{tags}"\n'
        done = subprocess.run(["doxygen", "-"], input=settings, cwd=ROOT, capture_output=True, text=True, check=True)
        warnings = set(done.stderr.splitlines())
        wrong = sorted(line for line in warnings if not UNDOCUMENTED.search(line))
        if wrong:
            sys.exit("site.py: Doxygen said:\n" + "\n".join(wrong))
        print(f"{len(warnings)} members of public headers have no comment", file=sys.stderr)
        for file in xml.etree.ElementTree.parse(tags).getroot().iterfind("compound[@kind='file']"):
            path = Path(file.findtext("path")) / file.findtext("name")
            if ROOT in path.parents:
                self.headers[str(path.relative_to(ROOT))] = "cpp/" + file.findtext("filename")
        for page in (self.pages / "cpp").glob("*.html"):  # Doxygen links to private classes that it does not show
            said = page.read_text()
            if 'id="nested-classes"' not in said:
                page.write_text(said.replace('<a href="#nested-classes">Classes</a> &#124;', ""))
        text = "# Headers of C++ and C\n\n[From C++ and C](../cpp.md) has four recipes. [All names](../cpp/annotated.html) · [all files](../cpp/files.html)\n"
        for folder in [ROOT / "include" / "heed", *sorted(path for path in (ROOT / "include" / "heed").iterdir() if path.is_dir())]:
            text += f"\n## {folder.relative_to(ROOT / 'include')}\n\n"
            self.headers[str(folder.relative_to(ROOT))] = "reference/cpp.md#" + str(folder.relative_to(ROOT / "include")).replace("/", "")
            for path in sorted(folder.glob("*.h*")):
                page = self.headers[str(path.relative_to(ROOT))]
                text += f"- [{path.name}](../{page}): {html.escape(what_it_has(path))}\n"
        (self.pages / "reference" / "cpp.md").write_text(text)

    def build(self):
        shutil.copytree(ROOT / "scripts" / "site_assets", self.pages / "assets")
        shutil.copy(ROOT / "scripts" / "site.yml", self.out / "mkdocs.yml")
        for folder in ("python", "scripts"):
            (self.out / folder).unlink(missing_ok=True)
            (self.out / folder).symlink_to(ROOT / folder)
        subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", self.out / "mkdocs.yml"],
                       check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})


def what_it_has(header):
    """The first sentence of a header."""
    comment = re.match(r"((?://.*\n)+)", header.read_text())[1]
    return re.sub(r"\s*\n// ?", " ", comment.removeprefix("// ").split("\n//\n")[0].strip()).split(". ")[0].rstrip(".:") + "."


def indented(text):
    """The text with lists nested by four spaces, as MkDocs wants them, where GitHub takes two."""
    lines, inside = [], False
    for line in text.split("\n"):
        inside = line.startswith("- ") or inside and (not line or line.startswith("  "))
        spaces = len(line) - len(line.lstrip(" "))
        lines.append(" " * spaces + line if inside else line)
    return "\n".join(lines)


def title_of(document):
    """The first heading of a document, without code."""
    return re.search(r"^# (.*)$", document.read_text(), re.M)[1].replace("`", "")


def is_text(file):
    return b"\0" not in file.read_bytes()[:4096]


def frame(name, title, up):
    return (f'<div class="heed-page"><iframe src="{up}/live/{name}" title="{title}" loading="lazy"></iframe>'
            f'<a href="{up}/live/{name}">{title}: open this page by itself</a></div>')


def main(heed, minilm, out):
    for name in ("pages", "site", "work"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "pages" / "reference").mkdir(parents=True)
    site = Site(heed, minilm, out)
    site.write_reference_of_cpp()
    site.write_reference_of_the_command()
    site.write_reference_of_python()
    site.write_pages()
    site.write_documents()
    site.build()


main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]), Path(sys.argv[3]).resolve())
