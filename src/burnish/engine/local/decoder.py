"""The forward pass of Llama-shaped decoders (Llama, Mistral, Qwen2, Qwen3, ...) with little around the arithmetic.

Decoding multiplies a few rows of activations with every weight of the model, and on a CPU most of the time goes into
what surrounds those products. The differences from the model's own modules:

* `x @ W.T` has oneDNN rearrange the whole weight on every call. `W @ x.T` is the same product with the *activations* as
  the operand to rearrange. Its result is the transpose, which stays a view: element-wise code does not care.
* Query, key and value projections are one product, and so are gate and up. The model's own weights become views of the
  joined storage, so loading in place works as before.
* Norms and rotary embedding take a third of the operations, on heads of queries and keys together.

A model is recognised by the shape of its modules, not by its name. Whether this pass really computes the same is tried
when the model is loaded (`LocalModel`); the model's own forward pass is used when it does not.

Shapes: `N` tokens of a packed pass, `F` hidden size, `H` query heads, `K` key/value heads, `D` head size, `I` width of
the MLP, `M` tokens whose logits are wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from burnish.engine.local.attention import KVCache, LayerCall

MAX_COLUMNS = 128  # with more tokens, rearranging the weight is the cheaper side
MIN_COLUMNS = 4  # a product with one column is a slow matrix-vector kernel; four columns cost half


class NotRecognised(Exception):
    """The model is not Llama-shaped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Norm:
    weight: Tensor  # [F] or [D]
    eps: Tensor  # [], fp32

    def __call__(self, x: Tensor) -> Tensor:
        """x / sqrt(mean(x^2) + eps) * weight over the last dimension; statistics and scaling in fp32."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scaled: Tensor = x * torch.addcmul(self.eps, norm, norm, value=1 / self.weight.shape[0]).rsqrt_()
        return scaled.to(x.dtype) * self.weight


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    attention_norm: _Norm
    qkv: Tensor  # [(H + 2K) D, F]
    qkv_bias: Tensor | None
    query_norm: _Norm | None
    key_norm: _Norm | None
    out: Tensor  # [F, H D]
    out_bias: Tensor | None
    mlp_norm: _Norm
    gate_up: Tensor  # [2 I, F]
    gate_up_bias: Tensor | None
    down: Tensor  # [F, I]
    down_bias: Tensor | None
    activation: Any
    call: LayerCall


class FastDecoder:
    """A second way to run the weights of a model."""

    def __init__(self, model: Any, calls: Sequence[LayerCall]) -> None:
        """Joins projections inside `model`, whose layers call attention as `calls` say.

        Raises NotRecognised, and then the model is untouched.
        """
        try:
            base = model.model
            plans = [_recognise(layer) for layer in base.layers]
            self._embedding: nn.Embedding = base.embed_tokens
            self._head: nn.Linear = model.lm_head
            self._rotary: Any = base.rotary_emb
            self._norm = _norm(base.norm)
        except AttributeError as missing:
            raise NotRecognised(str(missing)) from missing
        if type(self._embedding) is not nn.Embedding or type(self._head) is not nn.Linear:
            raise NotRecognised("embedding or head is special")
        self._layers = [_build(layer, call, *plan) for layer, call, plan in zip(base.layers, calls, plans, strict=True)]

    def logits(self, ids_N: Tensor, positions_N: Tensor, keep_M: Tensor, cache: KVCache) -> Tensor:
        """One packed pass; logits [M, V] of the tokens at `keep_M`."""
        x_NF = embedding(ids_N, self._embedding.weight)
        if _is_transposed(x_NF):
            x_NF = x_NF.t().contiguous().t()  # the layout of the products that will be added to it
        cos_1ND, sin_1ND = self._rotary(x_NF[None], positions_N[None])
        rotation = cos_1ND[0, :, None], sin_1ND[0, :, None]
        for index, layer in enumerate(self._layers):
            x_NF += _attention(layer, layer.attention_norm(x_NF), rotation, cache, index)
            x_NF += _mlp(layer, layer.mlp_norm(x_NF))
        return project(self._norm(x_NF[keep_M]), self._head.weight, self._head.bias)


def project(x_NF: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [N, in], weight [out, in] -> [N, out]; the memory layout may be that of the transpose."""
    if not _is_transposed(x_NF):
        return linear(x_NF, weight, bias)
    num_columns = x_NF.shape[0]
    if num_columns == 1:
        x_NF = x_NF.expand(MIN_COLUMNS, -1)
    out_ON = torch.mm(weight, x_NF.t())[:, :num_columns]
    if bias is not None:
        out_ON += bias[:, None]
    return out_ON.t()


def _is_transposed(x_NF: Tensor) -> bool:
    """Whether products with so many tokens are computed as their transpose; only bf16 on CPUs gets rearranged."""
    return x_NF.dtype == torch.bfloat16 and x_NF.device.type == "cpu" and x_NF.shape[0] <= MAX_COLUMNS


def _attention(layer: _Layer, x_NF: Tensor, rotation: tuple[Tensor, Tensor], cache: KVCache, index: int) -> Tensor:
    num_kv_heads, size = cache.shape.num_kv_heads, cache.shape.key_size
    qkv_NE = project(x_NF, layer.qkv, layer.qkv_bias).contiguous()  # attention wants each head's values side by side
    num_heads = qkv_NE.shape[1] // size - 2 * num_kv_heads
    heads_NHD = qkv_NE.view(qkv_NE.shape[0], -1, size)
    if layer.query_norm is not None and layer.key_norm is not None:
        queries, keys = slice(0, num_heads), slice(num_heads, num_heads + num_kv_heads)
        heads_NHD[:, queries] = layer.query_norm(heads_NHD[:, queries])
        heads_NHD[:, keys] = layer.key_norm(heads_NHD[:, keys])
    _rotate_(heads_NHD[:, : num_heads + num_kv_heads], *rotation)
    cache.store(index, qkv_NE[:, num_heads * size :])
    out_NHD = cache.read(index, heads_NHD[:, :num_heads], layer.call.scale, layer.call.window)
    return project(out_NHD.view(out_NHD.shape[0], -1), layer.out, layer.out_bias)


def _rotate_(x_NHD: Tensor, cos_N1D: Tensor, sin_N1D: Tensor) -> None:
    """Rotary embedding in place, in the half-split form: (a, b) -> (a cos - b sin, b cos + a sin)."""
    half = x_NHD.shape[2] // 2
    turned = x_NHD * cos_N1D
    turned[..., :half].addcmul_(x_NHD[..., half:], sin_N1D[..., :half], value=-1)
    turned[..., half:].addcmul_(x_NHD[..., :half], sin_N1D[..., half:])
    x_NHD.copy_(turned)


def _mlp(layer: _Layer, x_NF: Tensor) -> Tensor:
    gate_NI, up_NI = project(x_NF, layer.gate_up, layer.gate_up_bias).chunk(2, dim=1)
    return project(layer.activation(gate_NI).mul_(up_NI), layer.down, layer.down_bias)


def _recognise(layer: Any) -> tuple[list[nn.Linear], list[nn.Linear]]:
    """The attention and the MLP projections of a Llama-shaped layer. Changes nothing."""
    known = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
    if extra := {name for name, _ in layer.named_children()} - known:
        raise NotRecognised(f"its layers also have {sorted(extra)}")
    attention, mlp = layer.self_attn, layer.mlp
    inputs = [attention.q_proj, attention.k_proj, attention.v_proj]
    gates = [mlp.gate_proj, mlp.up_proj]
    groups = [*inputs, attention.o_proj], [*gates, mlp.down_proj]
    if any(type(projection) is not nn.Linear for group in groups for projection in group):
        raise NotRecognised("a projection is not a plain linear layer")
    if any(len({part.bias is None for part in joined}) > 1 for joined in (inputs, gates)):
        raise NotRecognised("some projections have a bias and their neighbours do not")
    for norm in (layer.input_layernorm, layer.post_attention_layernorm):
        _norm(norm)
    for name in ("q_norm", "k_norm"):
        norm = getattr(attention, name, None)
        if norm is not None and _norm(norm).weight.shape != (attention.head_dim,):
            raise NotRecognised("query and key norms are not over one head")
    return groups


def _build(layer: Any, call: LayerCall, attention: list[nn.Linear], mlp: list[nn.Linear]) -> _Layer:
    qkv, qkv_bias = _join(attention[:3])
    gate_up, gate_up_bias = _join(mlp[:2])
    norms = [getattr(layer.self_attn, name, None) for name in ("q_norm", "k_norm")]
    return _Layer(
        attention_norm=_norm(layer.input_layernorm),
        qkv=qkv,
        qkv_bias=qkv_bias,
        query_norm=None if norms[0] is None else _norm(norms[0]),
        key_norm=None if norms[1] is None else _norm(norms[1]),
        out=attention[3].weight,
        out_bias=attention[3].bias,
        mlp_norm=_norm(layer.post_attention_layernorm),
        gate_up=gate_up,
        gate_up_bias=gate_up_bias,
        down=mlp[2].weight,
        down_bias=mlp[2].bias,
        activation=layer.mlp.act_fn,
        call=call,
    )


def _norm(module: Any) -> _Norm:
    eps = getattr(module, "variance_epsilon", None)
    if not isinstance(eps, float):
        raise NotRecognised(f"{type(module).__name__} is no RMSNorm")
    return _Norm(weight=module.weight, eps=torch.tensor(eps, dtype=torch.float32, device=module.weight.device))


def _join(parts: list[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """The parts' weights in one storage, of which each part's own weight becomes a view; the same for their biases."""
    joined: dict[str, Tensor | None] = {}
    sizes = [part.out_features for part in parts]
    for name in ("weight", "bias"):
        tensors = [getattr(part, name) for part in parts]
        joined[name] = None if tensors[0] is None else torch.cat([tensor.detach() for tensor in tensors])
        if (whole := joined[name]) is not None:
            for part, view in zip(parts, torch.split(whole, sizes), strict=True):
                setattr(part, name, nn.Parameter(view, requires_grad=False))
    weight = joined["weight"]
    assert weight is not None
    return weight, joined["bias"]
