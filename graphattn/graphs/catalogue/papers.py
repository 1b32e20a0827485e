"""Papers that the named patterns are from: authors, title and where to read them."""

from typing import NamedTuple

_ARXIV = "https://arxiv.org/abs/"


class Paper(NamedTuple):
    """A paper.

    Args:
        authors: As text names them, with the year.
        title: In full.
        link: Its address.
        section: Where in it all of its patterns stand, or ``""``.
    """

    authors: str
    title: str
    link: str
    section: str = ""

    def __str__(self) -> str:
        if self.section:
            return f'{self.authors}, "{self.title}", {self.section}'
        return f'{self.authors}, "{self.title}"'


def paper_of(cited: str, name: str) -> Paper | None:
    """The paper cited as "author year" by the pattern called ``name``; ``None`` if it is not known.

    Several papers may be of an author and a year: those are listed with a word of the name.
    """
    same = [key for key in _PAPERS if key.split(": ")[0] == cited]
    for key in sorted(same, key=len, reverse=True):  # what has a word first
        word = key.partition(": ")[2]
        if word not in name:
            continue
        title, place, *section = _PAPERS[key]
        author, _, year = cited.rpartition(" ")
        authors = _AUTHORS.get(cited, f"{author} et al.")
        if "://" not in place:
            place = f"{_ARXIV}{place}"
        return Paper(f"{authors} {year}", title, place, *section)
    return None


#: Where "first author et al." is not what a paper is cited as.
_AUTHORS = {
    "Gemma Team 2025": "Gemma Team",
    "Gilbert 1959": "Gilbert",
    "GPT-OSS 2025": "OpenAI",
    "Hassani 2022": "Hassani and Shi",
    "Landrieu 2018": "Landrieu and Simonovsky",
    "Maslov 2002": "Maslov and Sneppen",
    "Meta 2025": "Meta",
    "Watts 1998": "Watts and Strogatz",
    "Zhu 2021": "Zhu and Soricut",
}
#: Of "author year", or "author year: word of the pattern's name": title, arXiv number or address,
#: and section.
_PAPERS: dict[str, tuple[str, ...]] = {
    "Ainslie 2020": ("ETC: Encoding Long and Structured Inputs in Transformers", "2004.08483"),
    "Alayrac 2022": (
        "Flamingo: a Visual Language Model for Few-Shot Learning",
        "2204.14198",
        "section 2.3",
    ),
    "Arnab 2021": ("ViViT: A Video Vision Transformer", "2103.15691"),
    "Arriola 2025": (
        "Block Diffusion: Interpolating Between Autoregressive and Diffusion Language Models",
        "2503.09573",
        "section 3.2",
    ),
    "Beltagy 2020": ("Longformer: The Long-Document Transformer", "2004.05150", "section 3.1"),
    "Bertasius 2021": (
        "Is Space-Time Attention All You Need for Video Understanding?",
        "2102.05095",
    ),
    "Chen 2019": ("Supervised Community Detection with Line Graph Neural Networks", "1705.08415"),
    "Chen 2021": (
        "Decision Transformer: Reinforcement Learning via Sequence Modeling",
        "2106.01345",
    ),
    "Chien 2022": (
        "You are AllSet: A Multiset Function Framework for Hypergraph Neural Networks",
        "2106.13264",
    ),
    "Child 2019": (
        "Generating Long Sequences with Sparse Transformers",
        "1904.10509",
        "sections 4.3 and 5.1",
    ),
    "Chu 2021": (
        "Twins: Revisiting the Design of Spatial Attention in Vision Transformers",
        "2104.13840",
    ),
    "Cordonnier 2020": (
        "On the Relationship between Self-Attention and Convolutional Layers",
        "1911.03584",
    ),
    "Dao 2022": (
        "Pixelated Butterfly: Simple and Efficient Sparse Training for Neural Network Models",
        "2112.00029",
    ),
    "Darcet 2023": ("Vision Transformers Need Registers", "2309.16588"),
    "Dong 2021": (
        "CSWin Transformer: A General Vision Transformer Backbone with Cross-Shaped Windows",
        "2107.00652",
    ),
    "Dosovitskiy 2021": (
        "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
        "2010.11929",
    ),
    "GPT-OSS 2025": ("gpt-oss-120b & gpt-oss-20b Model Card", "2508.10925"),
    "Gemma Team 2025": ("Gemma 3 Technical Report", "2503.19786"),
    "Gilbert 1959": ("Random Graphs", "https://doi.org/10.1214/aoms/1177706098"),
    "Gilmer 2017": ("Neural Message Passing for Quantum Chemistry", "1704.01212"),
    "Guo 2019": ("Star-Transformer", "1902.09113"),
    "Guo 2021": ("PCT: Point Cloud Transformer", "2012.09688"),
    "Guo 2022": (
        "LongT5: Efficient Text-To-Text Transformer for Long Sequences",
        "2112.07916",
    ),
    "Hanocka 2019": ("MeshCNN: A Network with an Edge", "1809.05910"),
    "Hassani 2022": ("Dilated Neighborhood Attention Transformer", "2209.15001"),
    "Hassani 2023": ("Neighborhood Attention Transformer", "2204.07143"),
    "Hassani 2025": (
        "Generalized Neighborhood Attention: Multi-dimensional Sparse Attention at the Speed of "
        "Light",
        "2504.16922",
    ),
    "Ho 2019": ("Axial Attention in Multidimensional Transformers", "1912.12180"),
    "Hu 2020": ("Heterogeneous Graph Transformer", "2003.01332"),
    "Hu 2022": ("Subdivision-Based Mesh Convolution Networks", "2106.02285"),
    "Huang 2019": ("CCNet: Criss-Cross Attention for Semantic Segmentation", "1811.11721"),
    "Jaegle 2021": ("Perceiver: General Perception with Iterative Attention", "2103.03206"),
    "Jaegle 2022": (
        "Perceiver IO: A General Architecture for Structured Inputs & Outputs",
        "2107.14795",
    ),
    "Jiang 2023": ("Mistral 7B", "2310.06825"),
    "Khalitov 2023": (
        "ChordMixer: A Scalable Neural Attention Model for Sequences with Different Lengths",
        "2206.05852",
    ),
    "Kirillov 2023": ("Segment Anything", "2304.02643"),
    "Kitaev 2020": ("Reformer: The Efficient Transformer", "2001.04451"),
    "Krell 2021": (
        "Efficient Sequence Packing without Cross-contamination: Accelerating Large Language "
        "Models without Impacting Performance",
        "2107.02027",
    ),
    "Kreuzer 2021": ("Rethinking Graph Transformers with Spectral Attention", "2106.03893"),
    "Lai 2022": (
        "Stratified Transformer for 3D Point Cloud Segmentation",
        "2203.14508",
        "section 3.2",
    ),
    "Lam 2023": (
        "GraphCast: Learning skillful medium-range global weather forecasting",
        "2212.12794",
    ),
    "Landrieu 2018": (
        "Large-scale Point Cloud Semantic Segmentation with Superpoint Graphs",
        "1711.09869",
    ),
    "Lee 2019": (
        "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural Networks",
        "1810.00825",
    ),
    "Lefaudeux 2022": (
        "xFormers: A modular and hackable Transformer modelling library",
        "https://github.com/facebookresearch/xformers",
    ),
    "Li 2019: LogSparse": (
        "Enhancing the Locality and Breaking the Memory Bottleneck of Transformer on Time Series "
        "Forecasting",
        "1907.00235",
        "section 4.2",
    ),
    "Li 2019: kNN": ("DeepGCNs: Can GCNs Go as Deep as CNNs?", "1904.03751"),
    "Liu 2021": (
        "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows",
        "2103.14030",
        "section 3.2",
    ),
    "Liu 2022: Swin V2": (
        "Swin Transformer V2: Scaling Up Capacity and Resolution",
        "2111.09883",
    ),
    "Liu 2022: Video Swin": ("Video Swin Transformer", "2106.13230"),
    "Lu 2025": ("MoBA: Mixture of Block Attention for Long-Context LLMs", "2502.13189"),
    "Luo 2023": ("Transformers over Directed Acyclic Graphs", "2210.13148"),
    "Maslov 2002": (
        "Specificity and Stability in Topology of Protein Networks",
        "https://doi.org/10.1126/science.1065103",
    ),
    "Meta 2025": (
        "The Llama 4 herd: The beginning of a new era of natively multimodal AI innovation",
        "https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
    ),
    "Miao 2023": (
        "SpecInfer: Accelerating Generative Large Language Model Serving with Tree-based "
        "Speculative Inference and Verification",
        "2305.09781",
    ),
    "Parmar 2018": ("Image Transformer", "1802.05751"),
    "Pfaff 2021": ("Learning Mesh-Based Simulation with Graph Networks", "2010.03409"),
    "Qi 2017": (
        "PointNet++: Deep Hierarchical Feature Learning on Point Sets in a Metric Space",
        "1706.02413",
    ),
    "Raffel 2020": (
        "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        "1910.10683",
    ),
    "Ramachandran 2019": ("Stand-Alone Self-Attention in Vision Models", "1906.05909"),
    "Rampasek 2022": ("Recipe for a General, Powerful, Scalable Graph Transformer", "2205.12454"),
    "Robert 2023": (
        "Efficient 3D Semantic Segmentation with Superpoint Transformer",
        "2306.08045",
    ),
    "Roy 2021": (
        "Efficient Content-Based Sparse Attention with Routing Transformers",
        "2003.05997",
    ),
    "Ryali 2023": (
        "Hiera: A Hierarchical Vision Transformer without the Bells-and-Whistles",
        "2306.00989",
    ),
    "Shazeer 2017": (
        "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
        "1701.06538",
    ),
    "Shirzad 2023": ("Exphormer: Sparse Transformers for Graphs", "2303.06147"),
    "Tai 2015": (
        "Improved Semantic Representations From Tree-Structured Long Short-Term Memory Networks",
        "1503.00075",
    ),
    "Tu 2022": ("MaxViT: Multi-Axis Vision Transformer", "2204.01697"),
    "Vaswani 2017": ("Attention Is All You Need", "1706.03762", "section 3.2.3"),
    "Vaswani 2021": (
        "Scaling Local Self-Attention for Parameter Efficient Visual Backbones",
        "2103.12731",
    ),
    "Velickovic 2018": ("Graph Attention Networks", "1710.10903"),
    "Wang 2019": ("Dynamic Graph CNN for Learning on Point Clouds", "1801.07829"),
    "Wang 2021": (
        "Pyramid Vision Transformer: A Versatile Backbone for Dense Prediction without "
        "Convolutions",
        "2102.12122",
    ),
    "Wang 2023": ("OctFormer: Octree-based Transformers for 3D Point Clouds", "2305.03045"),
    "Warner 2024": (
        "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory "
        "Efficient, and Long Context Finetuning and Inference",
        "2412.13663",
    ),
    "Watts 1998": (
        "Collective dynamics of 'small-world' networks",
        "https://doi.org/10.1038/30918",
    ),
    "Wu 2022": (
        "Point Transformer V2: Grouped Vector Attention and Partition-based Pooling",
        "2210.05666",
    ),
    "Wu 2024": ("Point Transformer V3: Simpler, Faster, Stronger", "2312.10035"),
    "Xiao 2023": (
        "Efficient Streaming Language Models with Attention Sinks",
        "2309.17453",
        "section 3.2",
    ),
    "Yang 2019": (
        "XLNet: Generalized Autoregressive Pretraining for Language Understanding",
        "1906.08237",
        "section 2.3",
    ),
    "Yang 2023": (
        "Swin3D: A Pretrained Transformer Backbone for 3D Indoor Scene Understanding",
        "2304.06906",
    ),
    "Ying 2021": (
        "Do Transformers Really Perform Bad for Graph Representation?",
        "2106.05234",
    ),
    "Zaheer 2020": ("Big Bird: Transformers for Longer Sequences", "2007.14062", "section 2"),
    "Zhang 2025": ("Fast Video Generation with Sliding Tile Attention", "2502.04507"),
    "Zhao 2019": (
        "Explicit Sparse Transformer: Concentrated Attention Through Explicit Selection",
        "1912.11637",
    ),
    "Zhao 2021": ("Point Transformer", "2012.09164"),
    "Zhou 2022": ("Mixture-of-Experts with Expert Choice Routing", "2202.09368"),
    "Zhu 2021": (
        "H-Transformer-1D: Fast One-Dimensional Hierarchical Attention for Sequences",
        "2107.11906",
    ),
}
