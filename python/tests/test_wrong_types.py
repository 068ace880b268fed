"""Every public function, given a wrong argument in each place: it works, or it says what is wrong in one sentence."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import heed
import heed.nn

RNG = np.random.default_rng(1)
X = RNG.standard_normal((1, 2, 4, 4), np.float32)
WRONG = [None, "x", b"x", [], [1.5], ["x"], [[1], [1, 2]], {}, {"a": 1}, (), (1, "x"), object(), 1.5, -1, 2**70, True, np.float32(1.5),
         np.zeros((2, 2)), np.zeros(3, ml_dtypes.bfloat16), np.array("x"), np.array([None]), int, lambda: None, X, 1j]
KINDS = (TypeError, ValueError, OSError)


def cache():
    made = heed.KvCache(kv_heads=2, key_dim=4, capacity=16, layout="paged")
    made.append(X, X)
    return made


def report():
    return heed.look(X, X, X, tokens=list("abcd"), causal=True)


def forward():
    return heed.attention(X, X, X, need="lse")


FOREIGN = ("incompatible function", "std::", "not iterable", "indices must be", "subscriptable", "unhashable", "inhomogeneous",
           "ambiguous", "not supported between", "argument should be a str", "os.PathLike object")  # not heed's words


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where a path that is wrong but possible is written."""
    monkeypatch.chdir(tmp_path)


MODEL = heed.load_model("induction")
MASK = {"queries": 4, "keys": 4}
INDICES = np.zeros((4, 2), np.int32)

# A right call of each public function, as (function, arguments).
CALLS = {
    "KvCache": lambda: (heed.KvCache, {
        "batch": 1, "kv_heads": 2, "key_dim": 4, "value_dim": 4, "capacity": 4, "layout": "contiguous", "page_size": 16,
        "page_order": "hnd", "sinks": 0, "window": 0, "format": "f32", "group": 32, "rotate": False, "values_in_keys": False}),
    "KvCache.over": lambda: (heed.KvCache.over, {"key": X, "value": X, "lengths": [4], "writable": False}),
    "KvCache.over_block_table": lambda: (heed.KvCache.over_block_table, {
        "key_pool": X, "value_pool": X, "block_table": np.zeros((1, 1), np.int32), "lengths": [1], "page_order": "nhd",
        "writable": False}),
    "KvCache.over_page_indices": lambda: (heed.KvCache.over_page_indices, {
        "key_pool": X, "value_pool": X, "indptr": [0, 1], "indices": [0], "last_page_len": [1], "page_order": "nhd",
        "writable": False}),
    "KvCache.load": lambda: (heed.KvCache.load, {"path": "/no/such"}),
    "KvCache.save": lambda: (cache().save, {"path": "/no/such/file"}),
    "KvCache.append": lambda: (cache().append, {"key": X, "value": X, "offsets": [0, 4], "sequences": [0]}),
    "KvCache.truncate": lambda: (cache().truncate, {"sequence": 0, "length": 1}),
    "KvCache.fork": lambda: (cache().fork, {"sequence": 0}),
    "KvCache.release": lambda: (cache().release, {"sequence": 0}),
    "KvCache.clear": lambda: (cache().clear, {"sequence": 0}),
    "KvCache.evict": lambda: (cache().evict, {"sequence": 0, "positions": [1]}),
    "KvCache.reserve": lambda: (cache().reserve, {"rows": 4}),
    "KvCache.add_received": lambda: (cache().add_received, {"received": X[..., 0], "decay": 1.0, "sequences": [0]}),
    "KvCache.positions": lambda: (cache().positions, {"sequence": 0}),
    "KvCache.keys": lambda: (cache().keys, {"sequence": 0}),
    "KvCache.values": lambda: (cache().values, {"sequence": 0}),
    "KvCache.received": lambda: (cache().received, {"sequence": 0}),
    "KvCache.stats": lambda: (cache().stats, {}),
    "SparseMask": lambda: (heed.SparseMask, {}),
    "SparseMask.rows": lambda: (heed.SparseMask.rows, {"intervals": [[[0, 1]]] * 4, "keys": 4}),
    "SparseMask.columns": lambda: (heed.SparseMask.columns, {"intervals": [[[1]]] * 4, "queries": 4}),
    "SparseMask.key_lists": lambda: (heed.SparseMask.key_lists, {
        "indices": INDICES, "keys": 4, "counts": [1] * 4, "gather": "never"}),
    "SparseMask.flash": lambda: (heed.SparseMask.flash, {
        "startend_row_indices": np.zeros((1, 1, 4, 1), np.int32), "causal": True, "queries": 4}),
    "SparseMask.slices": lambda: (heed.SparseMask.slices, {"slices": [((0, 2), (0, 2), "full")], **MASK}),
    "SparseMask.blocks": lambda: (heed.SparseMask.blocks, {
        "offsets": [0, 1, 1], "indices": [0], "block_size": (2, 2), **MASK}),
    "SparseMask.block_mask": lambda: (heed.SparseMask.block_mask, {
        "kv_num_blocks": [1, 1], "kv_indices": [[0, 1]] * 2, "full_kv_num_blocks": [0, 0], "full_kv_indices": [[0, 1]] * 2,
        "partial": None, "block_size": (2, 2), **MASK}),
    "SparseMask.expression": lambda: (heed.SparseMask.expression, {"text": "j <= a[i]", **MASK, "a": [0, 1, 2, 3]}),
    "SparseMask.dense": lambda: (heed.masks.documents([4]).dense, {}),
    "SparseMask.runs": lambda: (heed.masks.documents([4]).runs, {"batch": 0, "head": 0, "row": 0}),
    "ScoreMod": lambda: (heed.ScoreMod, {}),
    "ScoreMod.expression": lambda: (heed.ScoreMod.expression, {"text": "s - a[i]", "a": [0.0] * 4}),
    "attention": lambda: (heed.attention, {"q": X, "k": X, "v": X}),
    "attention_backward": lambda: (heed.attention_backward, {
        "q": X, "k": X, "v": X, "output": forward().output, "lse": forward().lse, "grad_output": X, "grad_lse": None,
        "grad_weights": None, "gradients": "dq"}),
    "attention_tile": lambda: (heed.attention_tile, {
        "q": X, "k": X, "lse": forward().lse, "rows": (0, 1), "keys": (0, 1), "batch": 0, "head": 0, "causal": False}),
    "differential_attention": lambda: (heed.differential_attention, {
        "q": X, "k": X, "v": X[:, :1], "lam": np.float32([0.5]), "need": "lse"}),
    "differential_attention_backward": lambda: (heed.differential_attention_backward, {
        "q": X, "k": X, "v": X[:, :1], "lam": np.float32([0.5]), "result": heed.differential_attention(X, X, X[:, :1], lam=np.float32([0.5])),
        "grad_output": X[:, :1]}),
    "explain": lambda: (heed.explain, {
        "text": "a b", "model": None, "word": "a", "against": None, "causal": True, "heads": 1, "seed": 1}),
    "generate": lambda: (heed.generate, {"model": MODEL, "prompt": "to be or to", "tokens": 2}),
    "grid_distance": lambda: (heed.grid_distance, {"q": X, "k": X, "grid": [2, 2], "first": 0}),
    "grid_map": lambda: (heed.grid_map, {"q": X, "k": X, "grid": [2, 2], "cells": [2, 2], "first": 0}),
    "info": lambda: (heed.info, {}),
    "load_model": lambda: (heed.load_model, {"folder": "/no/such", "fast": False}),
    "look": lambda: (heed.look, {"q": X, "k": X, "v": X, "tokens": list("abcd"), "key_tokens": list("abcd"),
                                 "token_ids": [1, 2, 3, 4], "key_token_ids": [1, 2, 3, 4], "top_k": 2, "title": "t", "cost": False}),
    "look weights": lambda: (heed.look, {"weights": X, "allowed": None, "tokens": list("abcd")}),
    "merge_summaries": lambda: (heed.merge_summaries, {"reports": [report(), report()]}),
    "moved_norms": lambda: (heed.moved_norms, {"v": X, "projection": X[0], "gate": X, "threads": 1}),
    "open": lambda: (heed.open, {"path": "/no/such"}),
    "plan_attention": lambda: (heed.plan_attention, {"q": X, "k": X, "v": X}),
    "plan_attention_backward": lambda: (heed.plan_attention_backward, {
        "q": X, "k": X, "v": X, "output": forward().output, "lse": forward().lse, "grad_output": X}),
    "set_target": lambda: (heed.set_target, {"name": heed._heed.target()}),
    "targets": lambda: (heed.targets, {}),
    "train": lambda: (heed.train, {"folder": "/no/such", "text": None, "resume": False, "checkpoint_every": 1, "stop_at": 0,
                                   "threads": 1, "progress": None, "layers": 1, "learning_rate": 0.1}),
    "Head": lambda: (heed.Head, {"report": report(), "number": 0}),
    "Head.row": lambda: (report()[0].row, {"row": 1, "top": 2}),
    "Report": lambda: (heed.Report, {"data": report()._data, "title": "t", "kinds": {}}),
    "Report.kind": lambda: (report().kind, {"name": "x"}),
    "Report.label": lambda: (report().label, {"head": 0}),
    "Report.__getitem__": lambda: (report().__getitem__, {"head": 0}),
    "Report.table_of": lambda: (report().table_of, {"summaries": report().summaries}),
    "Report.heads": lambda: (report().heads, {}),
    "Report.row": lambda: (report().row, {"row": 1, "head": 0, "batch": 0, "top": 2}),
    "Report.pair": lambda: (report().pair, {"row": 1, "key": 0, "batch": 0}),
    "Report.tile": lambda: (report().tile, {"rows": (0, 1), "keys": (0, 1), "head": 0, "batch": 0}),
    "Report.set_picture": lambda: (report().set_picture, {"picture": b"\x89PNG", "grid": (2, 2), "first_patch": 0}),
    "Report.page": lambda: (report().page, {"path": None, "title": "t"}),
    "Report.save": lambda: (report().save, {"path": "/no/such/file.html", "title": "t"}),
    "Tokenizer.from_file": lambda: (heed.Tokenizer.from_file, {"path": "/no/such"}),
    "Tokenizer.from_json": lambda: (heed.Tokenizer.from_json, {"text": "{}", "name": "n"}),
    "Model.token_ids": lambda: (MODEL.token_ids, {"text": "a b"}),
    "Model.tokens": lambda: (MODEL.tokens, {"text": "a b"}),
    "Model.chat_text": lambda: (MODEL.chat_text, {"messages": "a", "add_generation_prompt": True}),
    "Model.chat_ids": lambda: (MODEL.chat_ids, {"messages": "a", "add_generation_prompt": True}),
    "Model.cache": lambda: (MODEL.cache, {"format": "f32"}),
    "Model.hidden_states": lambda: (MODEL.hidden_states, {"what": [1, 2], "cache": None, "threads": 1}),
    "Model.logits": lambda: (MODEL.logits, {"what": [1, 2], "cache": None, "threads": 1}),
    "Model.streams": lambda: (MODEL.streams, {"what": [1, 2], "threads": 1}),
    "Model.weights": lambda: (MODEL.weights, {"what": [1, 2], "layer": 0, "threads": 1}),
    "Model.look": lambda: (MODEL.look, {"what": "a b a", "layer": 0, "by": "attention", "top_k": 2, "needle": "b", "keep": True,
                                        "threads": 1}),
    "masks.lightning_indexer": lambda: (heed.masks.lightning_indexer, {
        "query": X, "key": X[:, :1], "weights": X[..., 0], "top_k": 2, "causal": True, "query_offset": 0, "threads": 1}),
    "masks.prefix_lm": lambda: (heed.masks.prefix_lm, {"prefix": 1, **MASK}),
    "masks.documents": lambda: (heed.masks.documents, {"lengths": [2, 2], "causal": True}),
    "masks.sliding_window": lambda: (heed.masks.sliding_window, {"left": 1, "right": 0, **MASK}),
    "masks.sinks_and_window": lambda: (heed.masks.sinks_and_window, {"sinks": 1, "window": 1, **MASK}),
    "masks.dilated": lambda: (heed.masks.dilated, {"reach": 1, "step": 1, **MASK}),
    "masks.shared_question": lambda: (heed.masks.shared_question, {"question": 1, "answers": [1, 2]}),
    "masks.bigbird": lambda: (heed.masks.bigbird, {
        "block": 1, "global_blocks": 1, "window": 1, "random": 1, "seed": 1, **MASK}),
    "masks.neighbourhood": lambda: (heed.masks.neighbourhood, {
        "grid": [2, 2], "window": 1, "dilation": 1, "causal": False, "first_query": 0, **MASK}),
    "masks.axial": lambda: (heed.masks.axial, {"grid": [2, 2], "axis": 0, "first_query": 0, **MASK}),
    "nn.Embedding": lambda: (heed.nn.Embedding, {"count": 2, "dim": 2, "generator": 1, "dtype": "float32"}),
    "nn.Embedding.forward": lambda: (heed.nn.Embedding(2, 2).forward, {"ids": [0, 1]}),
    "nn.Generator": lambda: (heed.nn.Generator, {"seed": 1}),
    "nn.Generator.rand": lambda: (heed.nn.Generator().rand, {"shape": [2], "dtype": "float32"}),
    "nn.Generator.randn": lambda: (heed.nn.Generator().randn, {"shape": [2], "dtype": "float32"}),
    "nn.Generator.randint": lambda: (heed.nn.Generator().randint, {"low": 0, "high": 2, "shape": [2]}),
    "nn.Generator.randperm": lambda: (heed.nn.Generator().randperm, {"n": 2}),
    "nn.Linear": lambda: (heed.nn.Linear, {
        "in_features": 2, "out_features": 2, "bias": True, "generator": 1, "dtype": "float32"}),
    "nn.Linear.forward": lambda: (heed.nn.Linear(4, 2).forward, {"x": X[0, 0]}),
    "nn.Linear.save": lambda: (heed.nn.Linear(4, 2).save, {"path": "/no/such/file"}),
    "nn.Linear.load": lambda: (heed.nn.Linear(4, 2).load, {"path": "/no/such/file"}),
    "nn.SelfAttention": lambda: (heed.nn.SelfAttention, {
        "dim": 4, "key_dim": 2, "value_dim": 2, "generator": 1, "dtype": "float32"}),
    "nn.SelfAttention.forward": lambda: (heed.nn.SelfAttention(4, 2, 2).forward, {"x": X[0, 0], "causal": True}),
    "nn.MultiHeadAttention": lambda: (heed.nn.MultiHeadAttention, {
        "dim": 4, "heads": 2, "kv_heads": 2, "head_dim": 2, "value_dim": 2, "context_dim": 4, "bias": True,
        "output_projection": True, "generator": 1, "dtype": "float32"}),
    "nn.MultiHeadAttention.forward": lambda: (heed.nn.MultiHeadAttention(4, 2).forward, {"x": X[0, 0], "context": X[0, 0]}),
}

# Made by heed alone, or plain records of Python's.
MADE_BY_HEED = {"AttentionGradients", "AttentionResult", "AttentionPlan", "PlannedPass", "DifferentialGradients",
                "DifferentialResult", "Explanation", "Model", "TrainedModel", "Tokenizer", "__version__", "nn.LayerResult"}


def test_every_public_function_is_called():
    functions = {name for name in heed.__all__ if name not in MADE_BY_HEED}
    functions |= {f"masks.{name}" for name in dir(heed.masks) if name.islower() and not name.startswith("_")}
    functions |= {f"nn.{name}" for name in heed.nn.__all__} - MADE_BY_HEED
    for owner in (heed.KvCache, heed.SparseMask, heed.ScoreMod):
        functions |= {f"{owner.__name__}.{name}" for name in dir(owner)
                      if not name.startswith("_") and callable(getattr(owner, name))}
    assert functions <= set(CALLS), functions - set(CALLS)


def wrong_calls(function, arguments):
    """Each call with one fault: (what is wrong, positional arguments, keyword arguments)."""
    for name in arguments:
        for value in WRONG:
            yield f"{name}={value!r:.40}", (), {**arguments, name: value}
        yield f"without {name}", (), {other: value for other, value in arguments.items() if other != name}
    yield "one more", (*arguments.values(), 1), {}
    yield "unknown=1", (), {**arguments, "unknown": 1}


def fault_of(name, function, positional, keywords):
    """What is wrong with the error of this call, or None."""
    try:
        function(*positional, **keywords)
    except IndexError as error:  # by which iteration ends
        return None if name == "Report.__getitem__" else f"IndexError: {error}"
    except KINDS as error:
        if any(words in str(error) for words in FOREIGN):
            return f"{type(error).__name__}: {str(error):.300}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_in_one_sentence(name):
    faults = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for what, positional, keywords in wrong_calls(*CALLS[name]()):
            function, _ = CALLS[name]()
            if (fault := fault_of(name, function, positional, keywords)) is not None:
                faults[what] = fault
    assert not faults, "\n".join(f"{what}: {fault}" for what, fault in faults.items())
