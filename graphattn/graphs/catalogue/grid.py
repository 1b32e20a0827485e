"""Named patterns: grid."""

from functools import partial

from .pattern import Named

_named = partial(Named, "grid")
NAMED: tuple[Named, ...] = (
    _named(
        "Swin",
        "square cells of an image",
        "window_partition((8, 8), 4)",
        "Liu 2021",
        also="window attention, windowed self-attention",
    ),
    _named(
        "Swin, shifted",
        "the cells half a side further on, cut at the border",
        "window_partition((8, 8), 4, 2)",
        "Liu 2021",
        also="shifted window attention",
    ),
    _named(
        "Swin, padded",
        "the image is padded to whole cells, and the padding is read",
        "window_partition((6, 7), 4, 2, read_padding=True)",
        "Liu 2021",
    ),
    _named(
        "Swin V2",
        "the cells of Swin; scores alone differ",
        "window_partition((8, 8), 4)",
        "Liu 2022",
    ),
    _named(
        "Video Swin",
        "cells of a video, shifted on all axes",
        "window_partition((4, 4, 4), 2, 1)",
        "Liu 2022",
    ),
    _named(
        "neighborhood attention (NATTEN)",
        "the nearest nodes on every axis; the window stops at the border",
        "grid_neighbourhood((8, 8), 3, causal=False)",
        "Hassani 2023",
        also="neighbourhood attention, local window of an image",
    ),
    _named(
        "dilated neighborhood (DiNA)",
        "the same, every d-th node",
        "grid_neighbourhood((8, 8), 3, dilation=2, causal=False)",
        "Hassani 2022",
    ),
    _named(
        "causal neighborhood",
        "a video that reads back in time, and around in the image",
        "grid_neighbourhood((4, 4, 4), (2, 3, 3), causal=(True, False, False))",
        "Hassani 2025",
    ),
    _named(
        "strided neighborhood (GNA)",
        "neighbours share the window of their leader",
        "grid_neighbourhood((8, 8), 4, stride=2, causal=False)",
        "Hassani 2025",
    ),
    _named(
        "sliding tile (STA)",
        "tiles read the nearest tiles on every axis",
        "grid_neighbourhood((8, 8), 6, stride=2, causal=False)",
        "Zhang 2025",
    ),
    _named(
        "SASA",
        "a window around every node, cut at the border",
        "grid_neighbourhood((8, 8), 3, causal=False, clamp=False)",
        "Ramachandran 2019",
        also="local window attention, stand-alone self-attention, convolution-like",
    ),
    _named(
        "convolution, one head",
        "the neighbour at one offset; the kernel's other places are the other heads",
        "shifted((6, 8), (0, 1))",
        "Cordonnier 2020",
        also="convolution kernel as attention",
    ),
    _named(
        "convolution, strided",
        "the window of a kernel around every second node; fewer targets than sources",
        "shifted(48, -1, stride=2) | shifted(48, 0, stride=2) | shifted(48, 1, stride=2)",
    ),
    _named("HaloNet", "cells that read beyond their border", "halo((8, 8), 4, 1)", "Vaswani 2021"),
    _named(
        "HaloNet, padded",
        "the same, and nodes outside the image are read, too",
        "halo((6, 6), 3, 1, read_padding=True)",
        "Vaswani 2021",
    ),
    _named("MaxViT, block", "square cells of an image", "window_partition((8, 8), 4)", "Tu 2022"),
    _named(
        "MaxViT, grid",
        "nodes the same number of steps apart, over the whole image",
        "grid_neighbourhood((8, 8), 4, dilation=2, causal=False)",
        "Tu 2022",
    ),
    _named(
        "axial, rows",
        "the nodes of the same row",
        "window_partition((6, 8), (1, 8))",
        "Ho 2019",
        also="axial attention, row attention, row and column attention",
    ),
    _named(
        "axial, columns",
        "the nodes of the same column",
        "window_partition((6, 8), (6, 1))",
        "Ho 2019",
        also="axial attention, column attention, row and column attention",
    ),
    _named(
        "criss-cross (CCNet)",
        "the same row or column, the node itself once",
        "window_partition((6, 8), (1, 8)) | window_partition((6, 8), (6, 1))",
        "Huang 2019",
        also="criss-cross attention, axial attention, row and column attention",
    ),
    _named(
        "CSWin, horizontal",
        "stripes of rows, for half of the heads; the second half in their code",
        "window_partition((8, 8), (2, 8))",
        "Dong 2021",
    ),
    _named(
        "CSWin, vertical",
        "stripes of columns, for the others: PerHead((vertical, horizontal)) in their code",
        "window_partition((8, 8), (8, 2))",
        "Dong 2021",
    ),
    _named("Twins, local", "square cells of an image", "window_partition((8, 8), 4)", "Chu 2021"),
    _named("Twins, global", "every node reads one node for each cell", "cross(64, 4)", "Chu 2021"),
    _named("PVT, SegFormer", "every node reads a pooled image", "cross(64, 16)", "Wang 2021"),
    _named("pooling", "a cell becomes a node of a coarser image", "cell_pooling((8, 8), 2)"),
    _named(
        "unpooling",
        "a node reads the node that its cell became",
        "cell_pooling((8, 8), 2).reverse()",
    ),
    _named(
        "TimeSformer, time",
        "the same patch in all frames; the class token takes no part",
        "window_partition((4, 3, 3), (4, 1, 1))",
        "Bertasius 2021",
        also="temporal attention, divided space-time attention",
    ),
    # One class token for all frames, window_partition((4, 3, 3), (1, 3, 3)).with_global_tokens(1),
    # gives every patch the same output; its own row is then one softmax over all frames, where
    # TimeSformer has the mean of one for each.
    _named(
        "TimeSformer, space",
        "frames, each with its own copy of the class token; the layer averages the copies",
        "window_partition((4, 10), (1, 10))",
        "Bertasius 2021",
        also="spatial attention, divided space-time attention",
    ),
    _named("ViViT, VideoMAE", "all patches of all frames", "full(48)", "Arnab 2021"),
    _named(
        "block-causal video",
        "a frame reads itself and the past",
        "grid_neighbourhood((4, 3, 4), (4, 3, 4), causal=(True, False, False))",
    ),
    _named(
        "Segment Anything, windows",
        "cells of a padded image, whose padding is read",
        "window_partition((7, 7), 4, read_padding=True)",
        "Kirillov 2023",
    ),
    _named(
        "Segment Anything, global",
        "every node reads every node, in a few layers",
        "full(49)",
        "Kirillov 2023",
    ),
    _named(
        "Hiera mask units",
        "tokens of a unit, which stand n units apart",
        "documents(torch.arange(48) % 4, causal=False)",
        "Ryali 2023",
    ),
    _named(
        "local, L1", "at most r steps along the axes", "grid_ball((8, 8), 2, p=1)", "Lefaudeux 2022"
    ),
    _named(
        "local, L2", "at most r steps as the crow flies", "grid_ball((8, 8), 2.3)", "Lefaudeux 2022"
    ),
    _named(
        "local, Linf",
        "at most r steps on every axis",
        "grid_ball((8, 8), 2, p=torch.inf)",
        "Lefaudeux 2022",
    ),
    _named(
        "class token",
        "a token in front that reads all and is read by all, before any graph",
        "window_partition((6, 8), (3, 4)).with_global_tokens(1)",
        "Dosovitskiy 2021",
        also="CLS token, global token",
    ),
    _named(
        "registers",
        "several tokens in front that read all and are read by all",
        "grid_neighbourhood((7, 7), 3, causal=False).with_global_tokens(4)",
        "Darcet 2023",
        also="register tokens, global tokens",
    ),
)
