"""MultiheadAttention: torch.nn.MultiheadAttention with heed's attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .._torch_tensors import check, check_storage, is_nested, real, truth, whole
from ._sdpa import scaled_dot_product_attention


def _as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Converts a mask of torch.nn.MultiheadAttention, where True forbids, to a bias."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(mask, float("-inf"))


def _size(name: str, value: Any) -> int:
    size = int(whole(f"MultiheadAttention: {name}", value))
    if size < 1:
        raise ValueError(f"MultiheadAttention: {name} is {size}; 1 or more is expected")
    return size


class MultiheadAttention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention with the same parameters, arguments and results, on the CPU.

    need_weights=True only adds the cost of writing the weights, which come from the same fused pass. Unlike PyTorch, it
    returns the weights before dropout, and a query that may attend to nothing has weights and output 0 instead of NaN.
    Nested tensors [N, L*, E] are accepted with gradients and without masks; their weights are padded.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        embed_dim, num_heads = _size("embed_dim", embed_dim), _size("num_heads", num_heads)
        if embed_dim % num_heads != 0:
            raise ValueError(f"MultiheadAttention: embed_dim is {embed_dim}; a multiple of num_heads, {num_heads}, is "
                             "expected")
        kdim, vdim = (given if given is None else _size(name, given) for name, given in (("kdim", kdim), ("vdim", vdim)))
        dropout = real("MultiheadAttention: dropout", dropout)
        if not 0 <= dropout <= 1:
            raise ValueError(f"MultiheadAttention: dropout is {dropout}; 0 to 1 is expected")
        bias, add_bias_kv, add_zero_attn, batch_first = (
            truth(f"MultiheadAttention: {name}", given) for name, given in (
                ("bias", bias), ("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn),
                ("batch_first", batch_first)))
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"MultiheadAttention: dtype is {dtype!r}; a floating torch.dtype is expected")
        super().__init__(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device,
                         dtype)

    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        # In eval mode, torch.nn.TransformerEncoderLayer computes from the parameters and skips forward(), unless this
        # is False. Nothing else here reads it.
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal is True, but attn_mask is None; a mask is expected because "
                             "is_causal is only a hint about it")
        if is_nested(query):
            return self._nested(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights)
        check("MultiheadAttention", query=query, key=key, value=value, key_padding_mask=key_padding_mask,
              attn_mask=attn_mask)
        self._check(query, key, value, key_padding_mask, attn_mask)
        check_storage("MultiheadAttention", query=query, key=key, value=value)
        batched = query.dim() == 3
        if not batched:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        q, k, v = self._project(query, key, value)
        batch, targets, sources = q.shape[0], q.shape[1], k.shape[1]
        q, k, v = (tensor.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for tensor in (q, k, v))
        causal = is_causal and targets == sources and self.bias_k is None and not self.add_zero_attn
        # The hint says the same as the mask. PyTorch relies on it where no weights are needed; a learned mask says more.
        hinted = attn_mask is not None and (attn_mask.dtype == torch.bool or not (
            need_weights or key_padding_mask is not None or attn_mask.requires_grad))
        if causal and attn_mask is not None and attn_mask.dim() == 2 and hinted:
            attn_mask = None
        else:
            causal = False
        mask = self._mask(attn_mask, key_padding_mask, batch, k.shape[2], q.dtype, causal)
        found = scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0,
                                             causal and mask is None, return_weights=need_weights)
        output, weights = found if need_weights else (found, None)
        output = self.out_proj(output.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None,
               attn_mask: Tensor | None) -> None:
        """Refuses shapes and dtypes that torch.nn.MultiheadAttention refuses."""
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            axes = (query.dim(),) if name != "query" else (2, 3)
            if tensor is None or tensor.dim() not in axes:
                found = "None" if tensor is None else f"of shape {list(tensor.shape)}"
                raise ValueError(f"MultiheadAttention: {name} is {found}; a tensor of {' or '.join(map(str, axes))} axes "
                                 "is expected")
        batched, tokens = query.dim() == 3, int(query.dim() == 3 and self.batch_first)
        targets, sources, batch = query.shape[tokens], key.shape[tokens], query.shape[1 - tokens] if batched else 1

        def inputs(length: int, width: int) -> list[int]:
            return [*([batch, length] if self.batch_first else [length, batch]), width] if batched else [length, width]

        expected = {"query": (query, [inputs(targets, self.embed_dim)]), "key": (key, [inputs(sources, self.kdim)]),
                    "value": (value, [inputs(sources, self.vdim)]),
                    "key_padding_mask": (key_padding_mask, [[batch, sources] if batched else [sources]]),
                    "attn_mask": (attn_mask, [[targets, sources], [batch * self.num_heads, targets, sources]])}
        for name, (given, shapes) in expected.items():
            if given is None:
                continue
            if list(given.shape) not in shapes:
                raise ValueError(f"MultiheadAttention: {name} has shape {list(given.shape)}; "
                                 f"{' or '.join(map(str, shapes))} is expected")
            if name.endswith("mask") and given.dtype != torch.bool and not given.is_floating_point():
                raise ValueError(f"MultiheadAttention: {name} has dtype {given.dtype}; bool (True where a key is "
                                 "forbidden) or a floating dtype (added to the scores) is expected")

    def _nested(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, need_weights: bool,
                attn_mask: Tensor | None, average: bool) -> tuple[Tensor, Tensor | None]:
        """Pads nested tensors, which torch.nn.TransformerEncoder passes to its layers after removing padding."""
        if attn_mask is not None or key_padding_mask is not None:
            raise ValueError("MultiheadAttention: a mask is given with a nested tensor; None is expected")
        if not self.batch_first:
            raise ValueError("MultiheadAttention: batch_first is False with a nested tensor; True is expected")
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if not tensor.is_nested or tensor.layout != torch.strided:
                found = f"a nested tensor of layout {tensor.layout}" if tensor.is_nested else "a plain tensor"
                raise ValueError(f"MultiheadAttention: {name} is {found}; a nested tensor of layout torch.strided is "
                                 f"expected")
        lengths = torch.tensor([len(row) for row in key.unbind()])
        q, k, v = (tensor.to_padded_tensor(0.0) for tensor in (query, key, value))
        padding = torch.arange(k.shape[1]) >= lengths[:, None]
        output, weights = MultiheadAttention.forward(self, q, k, v, padding, need_weights, average_attn_weights=average)
        rows = [row[:len(own)] for row, own in zip(output, query.unbind())]
        return torch.nested.as_nested_tensor(rows), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections [N, L, E], followed by bias_k and bias_v and a zero key if the module has them."""
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (functional.linear(x, weight, bias)
                   for x, weight, bias in zip((query, key, value), weights, biases))
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], 1)
        if self.add_zero_attn:
            k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
        return q, k, v

    def _mask(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, sources: int,
              dtype: torch.dtype, causal: bool) -> Tensor | None:
        """Both masks as one mask of scaled_dot_product_attention, [N or 1, H or 1, L or 1, S]."""
        masks = []
        if attn_mask is not None:
            masks.append(attn_mask.unflatten(0, (batch, self.num_heads)) if attn_mask.dim() == 3
                         else attn_mask[None, None])
        if key_padding_mask is not None:
            masks.append(key_padding_mask[:, None, None])
        # All queries may attend to the keys that the module appends.
        masks = [functional.pad(mask, (0, sources - mask.shape[-1])) for mask in masks]
        if causal and masks:
            masks.append(torch.ones(sources, sources, dtype=torch.bool).triu_(1)[None, None])
        if not masks:
            return None
        if all(mask.dtype == torch.bool for mask in masks):
            forbidden = masks[0]
            for mask in masks[1:]:
                forbidden = forbidden | mask
            return ~forbidden
        total = _as_bias(masks[0], dtype)
        for mask in masks[1:]:
            total = total + _as_bias(mask, dtype)
        return total
