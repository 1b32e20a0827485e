"""A mean over the nodes of all processes, as a loss for DDP and FSDP."""

from torch import Tensor

from ..arguments import check_shape, floats
from .shards import Shard


def mean(per_node: Tensor, shard: Shard, weight: Tensor | None = None) -> Tensor:
    r"""The mean over the nodes of all processes, equal in each, of this process's numbers.

    .. math:: \\sum_t w_t \\ell_t / \\sum_t w_t

    Its gradient is that of this process's part times the number of processes: DDP and FSDP average
    gradients, which then are those of the mean. Without them, sum the gradients of all processes
    and divide by their number.

    Args:
        per_node: Losses (T_p, ...) of the shard's own targets; further axes are averaged, too.
        shard: The shard.
        weight: Weights (T_p,) of the targets, not negative; 0 leaves out a node without a label.

    Raises:
        ShapeError: If there is not one row for each own target.
    """
    floats(per_node, "per_node", "(own targets, ...)", 1)
    check_shape(per_node, "per_node", (shard.num_targets, ...), "a row for each own target")
    losses = per_node
    if per_node.dim() > 1:
        losses = per_node.flatten(1).mean(1)
    if weight is not None:
        check_shape(weight, "weight", losses.shape, "a number for each own target")
    if weight is None:
        total = losses.new_tensor(float(losses.shape[0]))
    else:
        total = weight.to(losses.dtype).sum()
        losses = losses.where(weight != 0, 0) * weight
    total = shard.processes.sum(total.detach().clone())
    part = losses.sum() / total
    every = shard.processes.sum(part.detach().clone())
    local = part * shard.processes.number
    return local + (every - local).detach()
