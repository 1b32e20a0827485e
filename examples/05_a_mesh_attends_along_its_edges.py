"""A mesh attends along its edges: the connectivity that a surface already has is an attention pattern."""

import torch
import trimesh

import graphattn as ga

torch.manual_seed(0)
mesh = trimesh.creation.icosphere(subdivisions=2)  # 162 vertices, 480 edges
graph = ga.graphs.mesh_vertices(torch.tensor(mesh.faces), num_vertices=len(mesh.vertices)).with_self_loops()
print(repr(graph))
assert graph.num_edges == 2 * len(mesh.edges_unique) + len(mesh.vertices)

layer = ga.nn.GraphAttention(embed_dim=24, num_heads=3, qdim=3, kdim=3, vdim=3)
x = torch.tensor(mesh.vertices, dtype=torch.float32)
ours = layer(x, graph)

query, key, value = (p(x).unflatten(-1, (3, 8)).transpose(0, 1) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
dense = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=graph.mask())
theirs = layer.out_proj(dense.transpose(0, 1).flatten(-2))

difference = (ours - theirs).abs().max().item()
print(f"largest difference from SDPA with a {len(x)} x {len(x)} mask: {difference:.1e}")
assert difference < 1e-6

# After two layers a vertex depends on its 2-ring, and nothing beyond.
(gradient,) = torch.autograd.grad(layer(torch.tanh(layer(x.requires_grad_(), graph))[:, :3], graph)[0].sum(), x)
assert torch.equal(gradient.abs().sum(1) > 0, graph.k_hop(2).mask()[0])
