"""Writes tests/data/gguf_models.safetensors: ids and logits of real GGUF files, as transformers gives for `gguf_file=`.

Run it with PYTHONPATH=python/tests and the packages of requirements-full.txt, accelerate, and those of ./test's real
models. Of each row of logits it keeps 64 columns and the largest one.
"""
import sys

import numpy as np
import real_models
import torch
import transformers as t
from safetensors.numpy import save_file

TEXTS = ["The animal did not cross the street because it was too tired", "I'LL we'll don't, x = [1, 22, 333];",
         "  naive caf\u00e9 \n\n\tF\u00fc\u00dfe \u65e5\u672c\u8a9e \U0001f917 3.14"]
generator = np.random.default_rng(5)
tensors = {}
for name, path in (("smollm2", real_models.smollm2()), ("gemma3", real_models.gemma3())):
    where = dict(pretrained_model_name_or_path=str(path.parent), gguf_file=path.name)
    tokenizer = t.AutoTokenizer.from_pretrained(**where)
    model = t.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    columns = np.sort(generator.choice(model.config.vocab_size, 64, replace=False))
    tensors[f"{name}.columns"] = columns
    for n, text in enumerate(TEXTS):
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].numpy()
        tensors[f"{name}.{n}.text"] = np.frombuffer(text.encode(), np.uint8)
        tensors[f"{name}.{n}.ids"] = np.array(ids, np.int64)
        tensors[f"{name}.{n}.logits"] = np.ascontiguousarray(logits[:, columns])
        tensors[f"{name}.{n}.likeliest"] = logits.argmax(1).astype(np.int64)
save_file(tensors, sys.argv[1])
