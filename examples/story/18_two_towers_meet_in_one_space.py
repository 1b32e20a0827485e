"""Two towers meet in one space: a picture finds its caption among others, by a contrast.

CLIP makes the vectors of a picture and its caption alike, and those of other pairs not
(Radford et al. 2021). No edge runs between the two encoders: only the loss compares.
"""

# %%
# "red cross top left": pictures of 16 patches, on a full graph, captions on a causal one
# ---------------------------------------------------------------------------------------
from itertools import product

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga

NAMES = "red green blue cross square bar top bottom left right"
SCENES = torch.tensor(list(product((0, 1, 2), (3, 4, 5), (6, 7), (8, 9))))
FORMS = torch.tensor(
    [[0, 2, 0, 2, 2, 2, 0, 2, 0], [2] * 4 + [0] + [2] * 4, [0, 2, 0] * 3]
)


def picture(scene):
    colour, form, y, x = (scene - torch.tensor([0, 3, 6, 8])).tolist()
    image = 0.3 * torch.rand(3, 8, 8)
    y, x = 4 * y + torch.randint(2, ()), 4 * x + torch.randint(2, ())
    image[colour, y : y + 3, x : x + 3] += 0.35 * FORMS[form].view(3, 3)
    return image


class Towers(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.patch, self.word = nn.Linear(12, width), nn.Embedding(10, width)
        self.places = nn.Parameter(0.1 * torch.randn(20, width))
        self.eye, self.ear = (ga.models.Encoder(1, width, 2) for _ in range(2))
        self.cold = nn.Parameter(torch.tensor(10.0).log())

    def forward(self, images, captions):
        patches = F.unfold(images, 2, stride=2).mT
        seen = self.eye(self.patch(patches) + self.places[:16], ga.graphs.full(16))
        read = self.word(captions) + self.places[16:]
        heard = self.ear(read, ga.graphs.causal(4))[:, -1]  # the last word has read all
        a, b = F.normalize(seen.mean(1), dim=-1), F.normalize(heard, dim=-1)
        return self.cold.exp() * a @ b.T


def batch(scenes):
    return torch.stack([picture(scene) for scene in scenes]), scenes


# %%
# A loss that asks both ways; five of the scenes are never shown
# --------------------------------------------------------------
torch.manual_seed(0)
order = torch.randperm(36)
adam = torch.optim.Adam((model := Towers()).parameters(), 3e-3)
for _ in range(400):
    scores, pair = model(*batch(SCENES[order[5:]])), torch.arange(31)
    loss = (F.cross_entropy(scores, pair) + F.cross_entropy(scores.T, pair)) / 2
    adam.zero_grad()
    loss.backward()
    adam.step()
with torch.no_grad():
    shown, captions = batch(SCENES)  # new pictures of all scenes
    scores = model(shown, captions)
right = (scores.argmax(1) == torch.arange(36)).float()
unseen = float(right[order[:5]].mean())
print(f"its caption of 36: {right.mean():.0%}; of scenes never shown: {unseen:.0%}")
assert right.mean() > 0.8 > unseen > 5 / 36 > 1 / 36  # the last is chance
_, axes = plt.subplots(1, 6, figsize=(13, 2.6), layout="constrained")
axes[0].imshow(scores, cmap="Blues")
axes[0].set(title="likeness of all pairs", xlabel="caption", ylabel="picture")
for axis, number in zip(axes[1:], order[:5].tolist(), strict=True):
    axis.imshow(shown[number].permute(1, 2, 0).clamp(max=1))
    said = " ".join(NAMES.split()[word] for word in captions[scores[number].argmax()])
    axis.set_title(said + "\n(wrong)" * (not right[number]), fontsize=8)
