"""Forward passes of small models on the CPU, faster: the same mathematics through quicker kernels.

At the widths of this family (tens of columns) the general kernels are far from the speed of the machine.
`FastForward` swaps two of them while it is active in a thread; what it does not know it leaves alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

# Rows of queries that are attended to together: short blocks skip more of the masked half, long ones call
# less often.
_BLOCK = 32


class FastForward(TorchFunctionMode):
    """While active: single-precision linear maps through oneDNN and causal attention in blocks, on the CPU.

    Only without gradients: the kernels have no derivative. Results agree with the ordinary ones to rounding.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None and not torch.is_grad_enabled():
            result = replacement(*args, **(kwargs or {}))
            if result is not None:
                return result
        return func(*args, **(kwargs or {}))


def _plain(*tensors: Tensor | None) -> bool:
    """Whether all are ordinary single-precision CPU tensors, not wrapped by a transform such as vmap."""
    return all(
        tensor is None
        or (
            tensor.dtype == torch.float32
            and tensor.device.type == "cpu"
            and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        )
        for tensor in tensors
    )


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """torch.nn.functional.linear by oneDNN, fast on processors of every make; None if unfit."""
    if not _plain(input, weight, bias) or not torch.backends.mkldnn.is_available() or input.numel() == 0:
        return None
    return torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")


def causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """torch.nn.functional.scaled_dot_product_attention for causal (batch, head, time, width); None if unfit.

    Blocks of queries attend only to what lies before them, through batched products whose short side is the
    output's rows: the shape in which a narrow head is fastest.
    """
    shape = query.shape
    if not is_causal or attn_mask is not None or dropout_p or enable_gqa or not _plain(query, key, value):
        return None
    if len(shape) != 4 or key.shape != shape or value.shape != shape:
        return None
    batch, heads, time, width = shape
    scale = 1 / math.sqrt(width) if scale is None else scale
    queries = query.reshape(-1, time, width)
    keys = key.transpose(-1, -2).reshape(-1, width, time)
    values = value.transpose(-1, -2).reshape(-1, width, time)
    later = torch.full((_BLOCK, _BLOCK), -math.inf).triu(1)
    unused = query.new_empty(1)  # what baddbmm would add if beta were not 0
    # One piece of memory for the scores of every block, so that they stay in the cache.
    memory = query.new_empty(batch * heads * min(_BLOCK, time) * time)
    # Laid out (batch, time, head, width), so that the caller's join of the heads copies nothing.
    result = query.new_empty(batch, time, heads, width)
    for start in range(0, time, _BLOCK):
        end = min(start + _BLOCK, time)
        scores = memory[: batch * heads * (end - start) * end].view(batch * heads, end - start, end)
        torch.baddbmm(unused, queries[:, start:end], keys[:, :, :end], beta=0, alpha=scale, out=scores)
        scores[:, :, start:] += later[: end - start, : end - start]
        weights = torch.softmax(scores, -1, out=scores).transpose(1, 2)
        attended = torch.bmm(values[:, :, :end], weights)
        result[:, start:end] = attended.view(batch, heads, width, end - start).permute(0, 3, 1, 2)
    return result.transpose(1, 2)


_REPLACEMENTS: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
    functional.linear: linear,
    functional.scaled_dot_product_attention: causal_attention,
}
