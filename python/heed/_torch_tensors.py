"""Properties of a tensor known only to PyTorch's dispatcher: gradients, tangents, graphs, negation, special kinds.

The extension reads the memory of a plain tensor directly and asks `readable` about every other one. heed.torch asks
`is_plain` before it bypasses the dispatcher. No other code decides this.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental import proxy_tensor


def _plain_keys() -> int:
    """The dispatch keys of a CPU tensor whose memory contains its numbers."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    for name in ("ADInplaceOrView", "AutogradCPU", "AutocastCPU"):
        keys = keys.add(getattr(torch._C.DispatchKey, name))
    return int(keys.raw_repr())


PLAIN_KEYS = _plain_keys()
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_TANGENT = ("heed's attention is called with a tangent of forward-mode differentiation, which it does not compute: expected "
            "backward() or torch.autograd.grad")
_tracing_state, _dispatch_modes = torch._C._get_tracing_state, torch._C._len_torch_dispatch_stack
_function_modes, _transforms = torch._C._len_torch_function_stack, torch._C._functorch.peek_interpreter_stack


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether PyTorch has nothing to record for these tensors: no graph, gradient, tangent, mode or transform."""
    if torch.compiler.is_compiling() or _tracing_state() is not None or _dispatch_modes() or _function_modes():
        return False
    if forward_ad._current_level >= 0 or _transforms() is not None:
        return False
    tracked = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in _PLAIN_TYPES or not tensor.is_cpu or tracked and tensor.requires_grad:
            return False
    return True


def count_change(tensor: Tensor) -> None:
    """Raises a tensor's version, as PyTorch's own functions do that write into it."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def _has_tangent(tensor: Tensor) -> bool:
    if forward_ad._current_level < 0:
        return False
    if torch.compiler.is_compiling():  # the compiler sees no tangents, and runs a function that raises uncompiled
        raise RuntimeError(_TANGENT)
    return forward_ad.unpack_dual(tensor).tangent is not None


def _proxy_mode() -> Any:
    """The active mode of make_fx or torch.export; None if neither is tracing."""
    return proxy_tensor.get_proxy_mode() if _dispatch_modes() else None


def is_traced() -> bool:
    """Whether PyTorch is tracing a graph, or computing shapes only."""
    if torch.jit.is_tracing():
        return True
    if not _dispatch_modes():
        return False
    fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return fake is not None or _proxy_mode() is not None


def _stands_for_a_node(tensor: Tensor) -> bool:
    """Whether the traced graph has a node for this tensor. Always True under torch.jit.trace, which cannot tell."""
    if torch.jit.is_tracing():
        return True
    mode = _proxy_mode()
    return mode is not None and bool(proxy_tensor.has_proxy_slot(tensor, mode.tracer))


def _other_kind(tensor: Tensor) -> str | None:
    """How a tensor differs from a dense CPU tensor; None if it does not."""
    if tensor.is_nested:
        return ("is a nested tensor; a plain tensor is expected (heed.torch.scaled_dot_product_attention accepts nested "
                "ones)")
    if tensor.layout is not torch.strided:
        return f"has layout {tensor.layout}; torch.strided is expected, as to_dense() returns"
    if tensor.is_quantized:
        return f"has dtype {tensor.dtype}; a floating dtype is expected, as dequantize() returns"
    if not tensor.is_cpu:
        return f"is on {tensor.device}; the CPU is expected"
    return None


def readable(name: str, tensor: Tensor, in_place: bool) -> Tensor:
    """The tensor whose memory contains the numbers: the given one, or a copy if PyTorch negates it when reading."""
    def refuse(what: str) -> NoReturn:
        raise ValueError(f"{name} {what}")

    if tensor.requires_grad:
        refuse(f"requires a gradient, which only functions of heed.torch compute; {name}.detach() is expected here")
    if _has_tangent(tensor):
        refuse("has a tangent of forward-mode differentiation, which heed does not compute; a tensor without one is "
               "expected, as torch.autograd.forward_ad.unpack_dual returns")
    if _stands_for_a_node(tensor):
        refuse("is given while PyTorch traces a graph, which would freeze the result as a constant; a function of "
               "heed.torch, which the graph records, is expected")
    kind = _other_kind(tensor)
    if kind is not None:
        refuse(kind)
    keys = torch._C._dispatch_keys(tensor)
    if keys.has(torch._C.DispatchKey.Python):
        refuse(f"is a {type(tensor).__name__}, a kind of torch.Tensor without its own memory; a plain torch.Tensor "
               "is expected")
    if tensor.is_neg():
        if in_place:
            refuse("has the negative bit, so PyTorch negates its numbers on every read; a tensor that stores the "
                   f"negated numbers is expected, as {name}.resolve_neg() returns")
        return tensor.resolve_neg()
    if keys.raw_repr() & ~PLAIN_KEYS and not tensor.is_complex():  # the extension refuses complex dtypes
        refuse(f"is a tensor that PyTorch reads in its own way ({keys}); a plain tensor on the CPU is expected")
    return tensor


def number(name: str, value: Any) -> Any:
    """The number in a tensor with one element. Other objects are returned unchanged."""
    if not isinstance(value, Tensor):
        return value
    if value.requires_grad:
        raise ValueError(f"{name} requires a gradient, which heed does not compute; a number is expected, as "
                         f"{name}.item() returns")
    if _stands_for_a_node(value):
        raise ValueError(f"{name} is a tensor while PyTorch traces a graph, which would freeze its number as a "
                         f"constant; a number is expected, as {name}.item() returns")
    if value.numel() != 1:
        raise TypeError(f"{name} is a tensor of shape {list(value.shape)}; a number is expected")
    return value.item() if torch.compiler.is_compiling() else readable(name, value, False).item()


def real(name: str, value: Any) -> Any:
    """A number, also from a tensor or another object that converts to one."""
    value = number(name, value)
    if isinstance(value, (float, int, torch.SymFloat, torch.SymInt)):
        return value
    if not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {value!r}; a number is expected")
    return float(value)


def whole(name: str, value: Any) -> Any:
    """A whole number of 64 bits, also from a tensor or another object that converts to one."""
    value = number(name, value)
    if not isinstance(value, (int, torch.SymInt)):  # torch.compile needs this check first
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} is {value!r}; a whole number is expected")
        value = operator.index(value)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} is {value}; a whole number of 64 bits is expected")
    return value


def truth(name: str, value: Any) -> bool:
    """True or False, also from a tensor or a number."""
    value = number(name, value)
    if isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; True or False is expected")
    return bool(value)


def is_nested(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.is_nested


def check(function: str, **tensors: Any) -> None:
    """Refuses objects that are no tensors, kinds of tensors that the operators do not take, and mixed devices."""
    on_meta = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{function}: {name} is of type {type(tensor).__name__}; a torch.Tensor is expected")
        on_meta = tensor.is_meta if on_meta is None else on_meta
        if on_meta and tensor.is_meta:
            continue
        if tensor.layout is not _STRIDED or not tensor.is_cpu or tensor.is_nested or tensor.is_quantized:
            raise ValueError(f"{function}: {name} {_other_kind(tensor)}")
        if on_meta:
            raise ValueError(f"{function}: {name} is on cpu and {next(iter(tensors))} on meta; one device is expected")


def check_given(function: str, **tensors: Any) -> None:
    """The same as check(), and refuses None."""
    for name, tensor in tensors.items():
        if tensor is None:
            raise TypeError(f"{function}: {name} is None; a torch.Tensor is expected")
    check(function, **tensors)


def check_storage(function: str, **tensors: Tensor) -> None:
    """Refuses tensors that extend beyond their storage, before a PyTorch operator reads there."""
    if not is_plain():
        return
    for name, tensor in tensors.items():
        last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        needed, held = (last + 1) * tensor.element_size(), tensor.untyped_storage().nbytes()
        if tensor.numel() and needed > held:
            raise ValueError(f"{function}: {name} needs {needed} bytes of its storage, which was cut to {held}; a tensor "
                             "within its storage is expected")


def refuse_transforms(*tensors: Tensor | None) -> None:
    """Refuses torch.func transforms and tangents, because heed's operators do not support them."""
    if isinstance(_transforms(), torch._C._functorch.CInterpreter):  # torch.compile needs this form of the check
        raise RuntimeError("heed's attention is called within a transform of torch.func (vmap, grad, hessian, …), "
                           "which it does not support: expected tensors [B, H, L, D] instead of vmap, and backward() "
                           "or torch.autograd.grad")
    if any(x is not None and _has_tangent(x) for x in tensors):
        raise RuntimeError(_TANGENT)
