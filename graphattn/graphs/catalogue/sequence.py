"""Named patterns: sequence.

Not included, since they have no edges between nodes: Sinkhorn Transformer and Clusterformer (soft
sorts of blocks), deformable attention (it interpolates between nodes), Linformer, Performer,
Nystromformer, FNet and state space models (low rank, or no attention). After its projection
Linformer is ``cross`` to the projected keys.
"""

from functools import partial

from .pattern import Named

_named = partial(Named, "sequence")
_PLAIN = (
    _named(
        "full",
        "every token reads every token: an encoder",
        "full(48)",
        "Vaswani 2017",
        also="self-attention, bidirectional attention, dense attention",
    ),
    _named(
        "self only",
        "a token reads itself: a layer without attention",
        "self_loops(48)",
        also="identity, diagonal",
    ),
    _named(
        "causal",
        "a token reads itself and the past: a decoder",
        "causal(48)",
        "Vaswani 2017",
        also="autoregressive attention, masked self-attention, decoder-only, lower triangle",
    ),
    _named("anti-causal", "a token reads itself and the future", "causal(48).reverse()"),
    _named(
        "key/value cache",
        "the newest tokens read all tokens up to themselves",
        "causal(12, 48)",
        also="KV cache, decoding, generation",
    ),
    _named(
        "SDPA is_causal",
        "causal from the upper left corner, where targets and sources differ in number",
        'causal(12, 48, align="start")',
    ),
    _named("prefix LM", "a prefix that all read, then causal", "prefix(48, 16)", "Raffel 2020"),
    _named(
        "Gemma 3",
        "causal text; the tokens of an image read their whole image",
        "bidirectional_segments(torch.tensor([-1] * 8 + [0] * 12 + [-1] * 8 + [1] * 12 + [-1] * "
        "8))",
        "Gemma Team 2025",
    ),
    _named(
        "cross-attention",
        "a decoder reads all of an encoder",
        "cross(24, 48)",
        "Vaswani 2017",
        also="encoder-decoder attention",
    ),
    _named(
        "encoder-decoder",
        "an encoder, and a causal decoder that reads it; as one graph the same as a prefix LM",
        "composite([[full(24), None], [cross(24, 24), causal(24)]])",
        "Vaswani 2017",
    ),
    _named(
        "Decision Transformer",
        "return, state and action of each step in turn, causal",
        "causal(3 * 16)",
        "Chen 2021",
    ),
    _named(
        "learned sink",
        "causal, and all read one source before the first token: its score is learned, its value 0",
        "causal(48, 49)",
        "GPT-OSS 2025",
        also="attention sink",
    ),
    _named(
        "add_zero_attn, bias_kv",
        "one more source that all read, of key and value zero or learned",
        "cross(48, 49)",
    ),
)
_WINDOWS = (
    _named(
        "Mistral",
        "a window that ends with the token",
        "sliding_window(48, 9, causal=True)",
        "Jiang 2023",
        also="sliding window attention, local attention",
    ),
    _named(
        "FlashAttention window",
        "left and right of different lengths",
        "sliding_window(48, (9, 3))",
        also="sliding window attention, window_size",
    ),
    _named(
        "ModernBERT local",
        "a window on both sides",
        "sliding_window(48, 9, causal=False)",
        "Warner 2024",
        also="sliding window attention, local attention, bidirectional window",
    ),
    _named(
        "dilated window",
        "a window with gaps",
        "sliding_window(48, 9, causal=False, dilation=3)",
        "Beltagy 2020",
        also="dilated sliding window, atrous attention",
    ),
    _named("LogSparse", "tokens 1, 2, 4, 8, ... before", "logsparse(48)", "Li 2019"),
    _named(
        "LogSparse local",
        "the last few tokens, and those 1, 2, 4, 8, ... before them",
        "logsparse(48, 4)",
        "Li 2019",
    ),
    _named(
        "LogSparse restart",
        "the same, begun anew every so many tokens",
        "logsparse(48, 4, restart=16)",
        "Li 2019",
    ),
    _named(
        "StreamingLLM",
        "the first tokens, and a window",
        "sliding_window(48, 9, causal=True) | sinks(48, 4)",
        "Xiao 2023",
        also="attention sinks",
    ),
    _named(
        "Longformer",
        "a window on both sides, and a few tokens that read all and are read by all",
        "sliding_window(48, 9, causal=False) | global_tokens(48, (0, 20))",
        "Beltagy 2020",
        also="global attention, sliding window and global tokens",
    ),
    _named(
        "ETC",
        "global tokens of their own before the text; the text reads a window and them",
        "sliding_window(48, 9, causal=False) | global_tokens(48, (0, 1, 2, 3, 4, 5))",
        "Ainslie 2020",
    ),
    _named(
        "LongT5 local",
        "a radius on both sides",
        "sliding_window(48, 2 * 4 + 1, causal=False)",
        "Guo 2022",
    ),
    _named(
        "LongT5 TGlobal",
        "a radius on both sides, and the summary of every block: sources of their own",
        "composite([[sliding_window(48, 9, causal=False), cross(48, 6)]])",
        "Guo 2022",
    ),
)
_BLOCKS = (
    _named(
        "Sparse Transformer strided",
        "the last l tokens, and every l-th",
        "sparse_strided(48, 7)",
        "Child 2019",
    ),
    _named(
        "Sparse Transformer strided, far head",
        "every l-th token alone",
        "sliding_window(48, 48 // 7 + 1, causal=True, dilation=7)",
        "Child 2019",
    ),
    _named(
        "Sparse Transformer fixed",
        "the own block so far, and the last tokens of each block",
        "sparse_fixed(48, 8, 2)",
        "Child 2019",
    ),
    _named(
        "DeepSpeed fixed",
        "the same between blocks of tokens",
        "block_sparse(sparse_fixed(12, 4), 4)",
    ),
    _named(
        "BigBird",
        "a window of blocks, two global blocks, and random blocks",
        "block_sparse((near := sliding_window(12, 3, causal=False) | global_tokens(12, (0, 11))) "
        "| random_neighbours(12, 2, 7, avoid=near), 4)",
        "Zaheer 2020",
    ),
    _named(
        "block-local",
        "blocks that read themselves",
        "block_local(48, 8, causal=False)",
        also="chunked attention, blockwise attention, windows that do not overlap",
    ),
    _named(
        "Image Transformer 1-D",
        "the own block so far, and the block before",
        "block_local(48, 8, look_back=1, causal=True)",
        "Parmar 2018",
    ),
    _named(
        "Reformer local",
        "the own block and the one before, in a circle",
        "block_local(48, 8, look_back=1, causal=False, wrap=True)",
        "Kitaev 2020",
    ),
    _named(
        "Llama 4 chunked",
        "causal within chunks",
        "block_local(48, 12, causal=True)",
        "Meta 2025",
        also="chunked attention",
    ),
    _named(
        "block-causal",
        "all of the frame and of the frames before: video",
        "block_causal(48, 8)",
        also="frame-causal attention, temporal attention",
    ),
    _named(
        "block diffusion",
        "noisy blocks read themselves and the clean blocks before; clean text is block-causal",
        "block_diffusion(24, 6)",
        "Arriola 2025",
    ),
)
_LABELS = (
    _named(
        "packed documents",
        "several texts in one sequence, causal in each",
        "documents(lengths=(9, 14, 7, 18), causal=True)",
        "Krell 2021",
        also="sequence packing, block-diagonal mask, document mask, varlen",
    ),
    _named(
        "batched graphs",
        "several sets side by side, full in each",
        "documents(lengths=(9, 14, 7, 18), causal=False)",
        also="block-diagonal mask, batch of sets",
    ),
    _named(
        "shared prefix",
        "several continuations of one prompt, blind to each other",
        "causal(48) & (documents(lengths=(12, 14, 10, 12), causal=False) | global_tokens(48, tuple(range(12))))",
    ),
    _named(
        "speculative tree",
        "drafts in a tree read the text so far, their ancestors and themselves",
        "composite([[cross(15, 24), ancestors(torch.tensor([-1] + [(i - 1) // 2 for i in range(1, "
        "15)]))]])",
        "Miao 2023",
        also="tree attention, speculative decoding, Medusa",
    ),
    _named(
        "XLNet content",
        "causal in an order of its own",
        "causal_by_rank(torch.tensor([pow(2, i, 53) for i in range(48)]))",
        "Yang 2019",
    ),
    _named(
        "XLNet query",
        "the same without the token itself: what predicts it",
        "causal_by_rank(torch.tensor([pow(2, i, 53) for i in range(48)]), strict=True)",
        "Yang 2019",
    ),
    _named(
        "Flamingo",
        "text reads the last image before it",
        "cross_documents((torch.arange(40) % 14 == 4).cumsum(0), torch.arange(1, "
        "4).repeat_interleave(8))",
        "Alayrac 2022",
    ),
    _named(
        "Erdos-Renyi", "every pair by chance, independently", "erdos_renyi(48, 0.1)", "Gilbert 1959"
    ),
    _named(
        "random keys",
        "k sources by chance for each token",
        "random_neighbours(48, 5)",
        "Zaheer 2020",
    ),
    _named(
        "per-head graphs",
        "heads with graphs of their own, as copies of the nodes; in a layer they are a PerHead",
        "disjoint_union([sliding_window(24, 5, causal=True), sliding_window(24, 4, causal=True, dilation=5)])",
        "Child 2019",
    ),
)
_DATA = (
    _named(
        "Reformer LSH",
        "sorted by hash: the own bucket in the own chunk and the one before",
        "lsh_buckets(torch.tensor([pow(2, i, 53) % 5 for i in range(48)]), 8, causal=True)",
        "Kitaev 2020",
        also="locality-sensitive hashing, hashed attention",
    ),
    _named(
        "Reformer LSH, Hugging Face",
        "sorted by hash: all of the own chunk and the one before, in a circle",
        "lsh_buckets(torch.tensor([pow(2, i, 53) % 5 for i in range(48)]), 8, causal=True, "
        "same_bucket=False, wrap=True)",
        "Kitaev 2020",
    ),
    _named(
        "Routing Transformer",
        "the own cluster so far",
        "documents(torch.tensor([pow(2, i, 53) % 5 for i in range(48)]), causal=True)",
        "Roy 2021",
    ),
    _named(
        "Routing Transformer, balanced",
        "every centroid takes its w best tokens; tokens that share a centroid, causal",
        "(taken := top_k(torch.cos(torch.arange(5)[:, None] * torch.arange(48)), 10)).reverse() @ "
        "taken & causal(48)",
        "Roy 2021",
    ),
    _named(
        "Routing Transformer, by centroids",
        "the tokens of the same centroid so far",
        "routed(torch.cos(torch.arange(1, 49)[:, None] * torch.arange(1, 4)), torch.eye(3)) & "
        "causal(48)",
        "Roy 2021",
    ),
    _named(
        "MoBA",
        "the best blocks before, by the mean of their keys, and the own block so far",
        "top_k(torch.cos(torch.arange(48)[:, None] * torch.arange(6) * 0.7), 2, blocks=8, "
        "within=causal(48) - (own := block_local(48, 8, causal=True))) | own",
        "Lu 2025",
    ),
    _named(
        "top-k scores",
        "the k highest scores of each token",
        "top_k(torch.cos(torch.arange(48)[:, None] * torch.arange(48) * 0.13), 6)",
        "Zhao 2019",
        also="top-k attention, sparse selection",
    ),
    _named(
        "mixture of experts",
        "a token reads its two best experts",
        "top_k(torch.cos(torch.arange(40)[:, None] * torch.arange(1, 9)), 2)",
        "Shazeer 2017",
        also="MoE, routing",
    ),
    _named(
        "expert choice",
        "an expert takes its best tokens",
        "top_k(torch.cos(torch.arange(1, 9)[:, None] * torch.arange(40)), 10).reverse()",
        "Zhou 2022",
    ),
)
NAMED: tuple[Named, ...] = _PLAIN + _WINDOWS + _BLOCKS + _LABELS + _DATA
