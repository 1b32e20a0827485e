"""Every model type of the installed transformers, stock beside patched.

Run ``python tests/hf/sweep.py`` (``make sweep``); names of model types as arguments run those alone.
Each question ends as *equal*, *refused* (by an error of graphattn), *wrong* or *foreign* (an error of
anything else). The oracle of a graph is the untouched model, in which attention is a loop over rows and
heads that is given the mask of the graph as a matrix.
"""

import argparse
import collections
import copy
import inspect
import multiprocessing
import sys
import time
import warnings

import torch
import transformers
from tiny_models import TINY
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import graphattn as ga
from graphattn.errors import GraphAttnError
from graphattn.hf.modules import attention_modules

transformers.logging.set_verbosity_error()
LARGEST = 2e7  # parameters of a tiny model
INPUTS = ("input_ids", "pixel_values")
TOKENS = 12
DOCUMENTS = (5, 3, 4)
TOLERANCE = 1e-4  # float32 sums in another order, on outputs near 1; a wrong edge moves some 1e-1

#: Sizes beyond those of ``tiny_models``: latent attention, indexers, layers that are no attention.
SIZES = {
    8: "head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim linear_key_head_dim "
    "linear_value_head_dim mamba_d_state ssm_state_size state_size mamba_chunk_size chunk_size "
    "linear_head_dim indexer_head_dim swa_head_dim block_size index_n_heads",
    16: "q_lora_rank kv_lora_rank mamba_d_head mamba_head_dim mamba_headdim o_lora_rank hc_lowrank",
    4: "mamba_n_heads mamba_num_heads n_mamba_heads linear_num_value_heads linear_num_heads "
    "swa_num_attention_heads d_rel rel_extent index_kpool",
    2: "linear_num_key_heads mamba_expand expand o_groups moe_topk top_k swa_num_key_value_heads",
    1: "n_group topk_group mamba_n_groups n_groups mamba_ngroups n_shared_experts "
    "num_nextn_predict_layers num_dense_layers",
    24: "shared_expert_intermediate_size ffn_hidden_size expert_ffn_hidden_size "
    "shared_intermediate_size",
    64: "index_topk",
    32: "moe_latent_size lru_width ple_embed_dim",
    5: "sliding_window_size",
}
TABLE = TINY | {name: size for size, names in SIZES.items() for name in names.split()}
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
PER_LAYER = ("layer_types", "layers_block_type", "mlp_layer_types", "indexer_types")
#: What is tried until a model runs.
VARIANTS = (
    {},
    {"num_key_value_heads": 4},
    {"head_dim": None},
    {"num_key_value_heads": 4, "head_dim": None},
    {"head_dim": 16},
    {"layers": 4},
    {"layers": 4, "num_key_value_heads": 4},
    {"layers": 4, "head_dim": None},
)
_MLA = {"num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "head_dim": None}
_EXPERTS = {
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_group": 1,
    "topk_group": 1,
}
_MIX = ["linear_attention", "full_attention"]
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
#: Values of single model types that no rule gives.
PARTICULAR = {
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_offset": 0},
    "kimi_linear": _MLA | _EXPERTS | {"layer_types": _MIX, "mlp_layer_types": ["dense", "sparse"]},
    "bailing_hybrid": _MLA
    | _EXPERTS
    | {"layer_types": _MIX, "mlp_layer_types": ["dense", "sparse"]},
    "deepseek_v2": {"num_key_value_heads": 4, "num_experts_per_tok": 2, "n_group": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "minimax": {"layer_types": _MIX},
    "glm5_next_text": {
        "num_key_value_heads": 4,
        "qk_rope_head_dim": 0,
        "head_dim": 0,
        "layer_types": _MIX,
        "indexer_types": ["full", "full"],
        "mlp_layer_types": ["dense", "sparse"],
    },
    "dots3_note_text": {"num_key_value_heads": 4, "head_dim": None},
    "qwen4_exp_text": {
        "layer_types": ["linear_attention", "indexed_attention"],
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_budget": 64,
        "indexer_compress_ratio": 2,
        "indexer_head_dim": 8,
    },
    "deepseek_v4": {
        "num_key_value_heads": 1,
        "layer_types": ["compressed_sparse_attention"] * 2,
        "mlp_layer_types": ["moe", "moe"],
        "num_nextn_predict_layers": 0,
    },
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "step3p7_text": {"sliding_window": 5},
    "falcon_h1": {"mamba_d_ssm": 64},
    "zaya": {"num_experts_per_tok": 1},
} | {
    name: {"rope_parameters": _MROPE}
    for name in ("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text")
}
# half of each head is rotated
PARTICULAR |= {
    name: {"rope_parameters": _MROPE | {"partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}}
    for name in ("glm4v_text", "glm4v_moe_text", "glm_image_text", "glm_ocr_text", "glmga_text")
}


def tiny_config(kind, values):
    """A configuration of the class with small sizes, where ``values`` are given."""
    default = kind()
    known = default.to_dict()
    values = values | PARTICULAR.get(kind.model_type, {})
    layers = values.get("layers", 2)
    chosen = {}
    for name, size in TABLE.items():
        value = known.get(name)
        has_number = isinstance(value, int) and not isinstance(value, bool)
        if has_number or (name in known and value is None and name.endswith("token_id")):
            chosen[name] = size
    if "head_dim" in known and known["head_dim"] is None:
        chosen["head_dim"] = TABLE["head_dim"]
    chosen |= {name: layers for name in COUNTS if name in chosen}
    for name in PER_LAYER:
        if known.get(name):
            kinds = list(dict.fromkeys(known[name]))
            chosen[name] = (kinds * layers)[:layers]
    if isinstance(known.get("image_size"), list | tuple):
        chosen["image_size"] = [16, 16]
    if isinstance(known.get("num_heads"), list | tuple):  # of Swin's stages
        chosen |= {"num_heads": [2, 4], "depths": [2, 2], "window_size": 2, "embed_dim": 8}
    for name, value in values.items():
        if name in known and value is None:
            chosen.pop(name, None)
        elif hasattr(default, name):
            chosen[name] = value
    for name in getattr(kind, "sub_configs", {}):
        if getattr(default, name, None) is not None:
            chosen[name] = tiny_config(type(getattr(default, name)), values).to_dict()
    return kind(**chosen)


def auto_class(config):
    """The class of models of text, else of any."""
    for auto in (
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForSeq2SeqLM,
        transformers.AutoModel,
    ):
        if type(config) in list(auto._model_mapping):
            return auto
    raise LookupError(f"no class of models for {type(config).__name__}")


def tiny_model(name):
    """A model of the type that runs, with its inputs; or the last error."""
    error = None
    for values in VARIANTS:
        try:
            config = tiny_config(CONFIG_MAPPING[name], values)
            for part in (config, *(getattr(config, x, None) for x in config.sub_configs)):
                if hasattr(part, "_attn_implementation"):
                    part._attn_implementation = "eager"
            auto = auto_class(config)
            with torch.device("meta"):
                size = sum(x.numel() for x in auto.from_config(config).parameters())
        except (LookupError, ImportError):
            raise
        except Exception as problem:
            error = problem
            continue
        if size > LARGEST:
            error = ValueError(f"{size:,} parameters")
            continue
        if (kind := auto._model_mapping[type(config)]).main_input_name not in INPUTS:
            raise ValueError(f"the input of {kind.__name__} is {kind.main_input_name}")
        try:
            torch.manual_seed(0)
            model = auto.from_config(config, attn_implementation="eager").eval()
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.data.add_(0.05 * torch.randn_like(parameter))
            inputs = inputs_of(model)
            with torch.no_grad():
                off = difference(values_of(model(**inputs)), values_of(model(**inputs)))
        except Exception as problem:
            error = problem
            continue
        if off > TOLERANCE:
            raise ValueError("its output is drawn at random")
        return model, inputs
    raise error


def inputs_of(model):
    """Two examples of tokens or images."""
    draw = torch.Generator().manual_seed(1)
    names = inspect.signature(model.forward).parameters
    if model.main_input_name == "pixel_values":
        channels = getattr(model.config, "num_channels", 3)
        frames = [model.config.num_frames] if hasattr(model.config, "num_frames") else []
        return {"pixel_values": torch.randn(2, *frames, channels, 16, 16, generator=draw)}
    given = {"input_ids": torch.randint(3, 30, (2, TOKENS), generator=draw)}
    if "decoder_input_ids" in names:
        given["decoder_input_ids"] = torch.randint(3, 30, (2, 7), generator=draw)
    return given


def values_of(output):
    """The result of a model that depends on all of its layers."""
    for name in ("logits", "last_hidden_state", "text_embeds", "pooler_output"):
        value = getattr(output, name, None)
        if isinstance(value, torch.Tensor):
            return value
    raise ValueError("no output")


# --- the oracle: a loop over rows and heads

MASKS = {}  # by the id of a module: a function of (T, S)


def loop(
    module,
    query,
    key,
    value,
    attention_mask=None,
    scaling=None,
    dropout=0.0,
    position_bias=None,
    softcap=None,
    s_aux=None,
    **options,
):
    """Attention of heads-first tensors, row by row and head by head."""
    B, H, T, D = query.shape
    S = key.shape[2]
    scale = D**-0.5 if scaling is None else scaling
    allowed = MASKS[id(module)](T, S) if id(module) in MASKS else torch.ones(T, S) > 0
    output = []
    for row in range(B):
        for head in range(H):
            of_key = head // (H // key.shape[1])
            scores = scale * query[row, head] @ key[row, of_key].T
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            if position_bias is not None:
                bias = position_bias.expand(B, H, T, S)
                scores = scores + bias[row, head]
            if attention_mask is not None:
                rows, heads = attention_mask.shape[:2]
                added = attention_mask[row % rows, head % heads][:, :S]
                if added.dtype == torch.bool:
                    added = torch.zeros_like(scores).masked_fill(~added, -torch.inf)
                scores = scores + added
            if options.get("indices") is not None:
                chosen = torch.zeros(T, S + 1)
                chosen.scatter_(1, options["indices"][row].long() % (S + 1), 1.0)
                scores = scores.masked_fill(chosen[:, :S] == 0, -torch.inf)
            scores = scores.masked_fill(~allowed, -torch.inf)
            sink = torch.full((T, 1), -torch.inf)
            if s_aux is not None:
                sink = s_aux[head].expand(T, 1)
            if options.get("sinks") is not None:
                sink = options["sinks"][row, head]
            weights = torch.softmax(torch.cat((scores, sink), 1), 1)[:, :S]
            output.append(weights @ value[row, head // (H // value.shape[1])])
    output = torch.stack(output).unflatten(0, (B, H)).transpose(1, 2).contiguous()
    return output, None


def no_mask(batch_size, q_length, kv_length, device="cpu", **request):
    """A mask that hides nothing, to which layers may add their own."""
    return torch.ones(batch_size, 1, int(q_length), int(kv_length), dtype=torch.bool)


AttentionInterface.register("loop", loop)
AttentionMaskInterface.register("loop", no_mask)


class Oracle:
    """The untouched model with masks in place of the patch's graphs.

    Args:
        model: The model; ``graphs``, by the name of a module, its pattern.
    """

    def __init__(self, model, graphs):
        self.model = copy.deepcopy(model)
        self.model.set_attn_implementation("loop")
        modules = dict(self.model.named_modules())
        for name, graph in graphs.items():
            MASKS[id(modules[name])] = lambda T, S, graph=graph: sized(graph, T, S)

    def __call__(self, **inputs):
        return self.model(**inputs)


def sized(graph, T, S):
    """bool (T, S)."""
    try:
        return graph.at(S).mask()[S - T :]
    except Exception:
        return graph.at(T, S).mask()


def graphs_of(model, make):
    """The pattern of each attention module by name, full in cross-attention."""
    chosen = {}
    for place, module in attention_modules(model).items():
        if place.role == "cross":
            chosen[place.name] = ga.graphs.cross(..., ...)
        else:
            is_causal = bool(getattr(module, "is_causal", True)) and place.role != "encoder"
            chosen[place.name] = make(is_causal)
    return chosen


def whole(is_causal):
    return ga.graphs.causal(...) if is_causal else ga.graphs.full(...)


def window(is_causal):
    width = 4 if is_causal else 5
    return ga.graphs.sliding_window(..., width, causal=is_causal)


# --- questions


def difference(found, wanted):
    return float((found - wanted).abs().max())


def ask_own(model, inputs):
    """Its own masks."""
    wanted = values_of(model(**inputs))
    ga.patch(model, "model")
    return difference(values_of(model(**inputs)), wanted)


def ask_graph(make, model, inputs):
    graphs = graphs_of(model, make)
    oracle = Oracle(model, graphs)
    ga.patch(model, one_or_names(graphs))
    return difference(values_of(model(**inputs)), values_of(oracle(**inputs)))


def one_or_names(graphs):
    """What a user gives: one graph where that is enough."""
    distinct = {str(graph) for graph in graphs.values()}
    stacks = {"".join(x for x in name if not x.isdigit()) for name in graphs}
    if len(distinct) == 1 and len(stacks) == 1:
        return next(iter(graphs.values()))
    return dict(graphs)


def ask_whole(model, inputs):
    """All (earlier) tokens."""
    return ask_graph(whole, model, inputs)


def ask_window(model, inputs):
    """A window."""
    return ask_graph(window, model, inputs)


def ask_packed(model, inputs):
    """Packed documents, beside each alone."""
    tokens = inputs["input_ids"][:1]
    graphs = graphs_of(model, window)
    oracle = Oracle(model, graphs)
    documents = tokens.split(list(DOCUMENTS), 1)
    numbers = [torch.arange(x.shape[1])[None] for x in documents]
    parts = [
        values_of(oracle(input_ids=x, position_ids=number))
        for x, number in zip(documents, numbers, strict=True)
    ]
    wanted = torch.cat(parts, 1)
    if wanted.shape[:2] != tokens.shape:
        raise NotImplementedError("its output is not of tokens")
    positions = torch.cat(numbers, 1)
    ga.patch(model, one_or_names(graphs))
    found = values_of(model(input_ids=tokens, position_ids=positions))
    return difference(found, wanted)


def ask_padded(model, inputs):
    """A shorter row with padding on the left, beside that row alone."""
    tokens = inputs["input_ids"].clone()
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    extra = {}
    if "position_ids" in inspect.signature(model.forward).parameters:
        extra["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    padded = {"input_ids": tokens, "attention_mask": mask, **extra}
    alone = {"input_ids": tokens[:1, 3:]}
    if extra:
        alone["position_ids"] = extra["position_ids"][:1, 3:]
    need_alike(values_of(model(**padded))[:1, 3:], values_of(model(**alone)))
    graphs = graphs_of(model, window)
    oracle = Oracle(model, graphs)
    ga.patch(model, one_or_names(graphs))
    return difference(values_of(model(**padded))[:1, 3:], values_of(oracle(**alone)))


def ask_cache(model, inputs):
    """A cache by hand: a prompt, then tokens one by one."""
    tokens = inputs["input_ids"]
    graphs = graphs_of(model, window)
    oracle = Oracle(model, graphs)
    wanted = values_of(oracle(input_ids=tokens))
    need_alike(in_steps(oracle.model, tokens), wanted)
    ga.patch(model, one_or_names(graphs))
    return difference(in_steps(model, tokens), wanted)


def need_alike(found, wanted):
    """Leave out a plain model whose cache or padding changes its numbers."""
    off = difference(found, wanted)
    if off > TOLERANCE:
        raise NotImplementedError(f"the plain model is off by {off:.1e}")


def in_steps(model, tokens):
    found = model(input_ids=tokens[:, :7], use_cache=True, past_key_values=whole_cache(model))
    parts = [values_of(found)]
    for place in range(7, TOKENS):
        found = model(
            input_ids=tokens[:, place : place + 1],
            past_key_values=found.past_key_values,
            use_cache=True,
        )
        parts.append(values_of(found))
    return torch.cat(parts, 1)


def whole_cache(model):
    """A cache that drops no token; ``None`` if the model's own drops none."""
    from transformers import cache_utils as caches

    cache = caches.DynamicCache(config=model.config.get_text_config(decoder=True))
    drops = False
    for number, layer in enumerate(cache.layers):
        if type(layer) is caches.DynamicSlidingWindowLayer:
            cache.layers[number] = caches.DynamicLayer()
            drops = True
    if drops:
        return cache
    return None


def ask_generate(model, inputs):
    """Greedy steps of generate, beside the whole row."""
    graphs = graphs_of(model, window)
    oracle = Oracle(model, graphs)
    given = dict(inputs)
    decodes = given.pop("decoder_input_ids", None) is not None
    options = {
        "max_new_tokens": 4,
        "min_new_tokens": 4,
        "do_sample": False,
        "num_beams": 1,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    if decodes:
        options["decoder_start_token_id"] = 1
    plain = oracle.model.generate(**given, **options)
    need_alike(*logits_of(plain, oracle, given, decodes=decodes))
    ga.patch(model, one_or_names(graphs))
    result = model.generate(**given, **options)
    return difference(*logits_of(result, oracle, given, decodes=decodes))


def logits_of(result, oracle, given, *, decodes):
    """Those of the steps, and those of the oracle on the whole rows."""
    rows = result.sequences
    first = 1 if decodes else TOKENS
    whole_row = given | {"decoder_input_ids": rows} if decodes else {"input_ids": rows}
    wanted = values_of(oracle(**whole_row))[:, first - 1 : -1]
    found = torch.stack(result.logits, 1)
    if found.shape != wanted.shape:
        raise ValueError(f"logits of {tuple(found.shape)}, {tuple(wanted.shape)} wanted")
    return found, wanted


def gradients(model, inputs):
    output = values_of(model(**inputs))
    draw = torch.Generator().manual_seed(2)
    (output * torch.randn(output.shape, generator=draw)).sum().backward()
    return {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


def compare_gradients(found, wanted):
    assert wanted
    worst = 0.0
    for name, gradient in wanted.items():
        if gradient.numel():
            size = max(float(gradient.abs().max()), 1.0)
            worst = max(worst, difference(found[name], gradient) / size)
    return worst


def ask_gradients(model, inputs):
    """Gradients of all parameters."""
    graphs = graphs_of(model, window)
    oracle = Oracle(model, graphs)
    with torch.enable_grad():
        wanted = gradients(oracle.model, inputs)
        ga.patch(model, one_or_names(graphs))
        return compare_gradients(gradients(model, inputs), wanted)


def ask_checkpointed(model, inputs):
    """The same under gradient checkpointing."""
    graphs = graphs_of(model, window)
    oracle = Oracle(model, graphs)
    for part in (model, oracle.model):
        without_dropout(part.train())
    with torch.enable_grad():
        wanted = gradients(oracle.model, inputs | {"use_cache": False})
        ga.patch(model, one_or_names(graphs))
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return compare_gradients(gradients(model, inputs | {"use_cache": False}), wanted)


def without_dropout(model):
    for part in model.modules():
        for name, value in vars(part).items():
            if isinstance(value, float) and ("drop" in name or "jitter" in name or name == "p"):
                setattr(part, name, 0.0)
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0


QUESTIONS = {
    "own": ask_own,
    "whole": ask_whole,
    "window": ask_window,
    "packed": ask_packed,
    "padded": ask_padded,
    "cache": ask_cache,
    "generate": ask_generate,
    "gradients": ask_gradients,
    "checkpointed": ask_checkpointed,
}


def applies(question, model, inputs):
    """False where the plain model has no such call."""
    names = inspect.signature(model.forward).parameters
    is_text = set(inputs) == {"input_ids"}
    writes = hasattr(model, "generate") and model.can_generate()
    if set(inputs) == {"input_ids"}:
        writes = writes and all(
            getattr(module, "is_causal", True) for module in attention_modules(model).values()
        )
    needs = {
        "packed": is_text and "position_ids" in names,
        "padded": is_text and "attention_mask" in names,
        "cache": is_text and writes and "past_key_values" in names,
        "generate": "input_ids" in inputs and writes,
        "checkpointed": model.supports_gradient_checkpointing and "use_cache" in names,
    }
    return needs.get(question, True)


def answers(name):
    """(name, {question: (verdict, words)}) of a model type."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        plain, inputs = tiny_model(name)
    except Exception as error:
        return name, {}, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    try:
        attention_modules(plain)
    except GraphAttnError as error:
        return name, {"patch": ("refused", str(error))}, None
    except Exception as error:
        return name, {"patch": ("foreign", repr(error)[:160])}, None
    found = {}
    for question, ask in QUESTIONS.items():
        if not applies(question, plain, inputs):
            continue
        found[question] = answer(ask, plain, inputs)
        MASKS.clear()
    return name, found, None


def answer(ask, plain, inputs):
    model = copy.deepcopy(plain)
    try:
        with torch.no_grad():
            off = ask(model, inputs)
    except GraphAttnError as error:
        return "refused", " ".join(str(error).split())[:300]
    except NotImplementedError as error:
        return "not asked", str(error)
    except Exception as error:
        place = sys.exc_info()[2]
        files = []
        while place is not None:
            files.append(f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}")
            place = place.tb_next
        is_patched = any("_graphattn" in part.__dict__ for part in model.modules())
        where = files[-1].partition("site-packages/")[2] or files[-1]
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:120]} ({where})"
        if not is_patched:
            return "not asked", words  # the plain model fails, or the oracle
        return "foreign", words
    if off <= TOLERANCE:
        return "equal", f"{off:.1e}"
    return "wrong", f"off by {off:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    start = time.time()
    names = options.names or [name for name in CONFIG_MAPPING if not name.startswith("timm")]
    counts = {question: collections.Counter() for question in ("patch", *QUESTIONS)}
    skipped, bad, refused = {}, [], {}
    total = collections.Counter()
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=40) as pool:
        for name, found, problem in pool.imap_unordered(answers, names):
            if problem:
                skipped[name] = problem
                continue
            verdicts = {verdict for verdict, _ in found.values()}
            worst = next(
                (x for x in ("wrong", "foreign", "refused", "equal") if x in verdicts), "not asked"
            )
            total[worst] += 1
            for question, (verdict, words) in found.items():
                counts[question][verdict] += 1
                if verdict in ("wrong", "foreign"):
                    bad.append(f"{name} {question} {verdict}: {words}")
                if verdict == "refused":
                    refused.setdefault(question, []).append(name)
                if options.verbose:
                    print(f"{name} {question} {verdict}: {words}", flush=True)
    for name, problem in sorted(skipped.items()):
        if options.verbose:
            print(f"left out: {name}: {problem}")
    print("\n".join(sorted(bad)))
    print(f"\n| {'question':12} | equal | refused | wrong | foreign |\n|---|--:|--:|--:|--:|")
    for question, count in counts.items():
        row = [str(count[x]) for x in ("equal", "refused", "wrong", "foreign")]
        print(f"| {question:12} | {' | '.join(row)} |")
    print(f"{sum(total.values())} model types ({dict(total)}), {len(skipped)} cannot be made tiny")
    print(f"{time.time() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
