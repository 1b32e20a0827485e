"""Configurations of patched models, in which ``output_attentions`` may be set.

transformers allows it for eager attention alone.

Transformers' check is a property of the class, and another one runs when a configuration is saved.
The configuration of a patched model therefore gets a class of its own, by the same name, which Auto
classes take as they take the original.
"""

from functools import cache
from typing import Any

_CLASS_BEFORE = "_graphattn_class"  # of a class of patched configurations: the class before
_NAME = "_attn_implementation_internal"
_PREFIX = "graphattn"  # of the names of patches in configurations
_EAGER = ("eager", None)


def take_weights(config: Any) -> None:
    """Allow ``output_attentions`` in a patched model's configuration, while it names the patch."""
    kind: Any = type(config)
    if hasattr(kind, "output_attentions") and not hasattr(kind, _CLASS_BEFORE):
        config.__class__ = _class_of(kind)


def give_back(config: Any) -> None:
    """Undo :func:`take_weights`; only a configuration of eager attention keeps the request."""
    kind = getattr(type(config), _CLASS_BEFORE, None)
    if kind is None:
        return
    config.__class__ = kind
    if getattr(config, _NAME) not in _EAGER:
        config._output_attentions = False


@cache
def _class_of(kind: Any) -> type:
    """The class of patched configurations."""

    def named(config: Any) -> bool:
        return str(getattr(config, _NAME)).startswith(_PREFIX)

    def request(self: Any, value: bool) -> None:
        if named(self):
            self._output_attentions = value
        else:
            kind.output_attentions.fset(self, value)

    def save_pretrained(self: Any, *args: Any, **options: Any) -> Any:
        name = getattr(self, _NAME)
        if self.output_attentions and named(self):
            setattr(self, _NAME, "eager")  # as the saved request will be read
        try:
            return kind.save_pretrained(self, *args, **options)
        finally:
            setattr(self, _NAME, name)

    def reduce(self: Any, protocol: Any) -> Any:
        return _copy, (kind,), dict(self.__dict__)

    return type(
        kind.__name__,
        (kind,),
        {
            _CLASS_BEFORE: kind,
            "output_attentions": property(kind.output_attentions.fget, request),
            "save_pretrained": save_pretrained,
            "__reduce_ex__": reduce,
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
        },
    )


def _copy(kind: Any) -> Any:
    """A configuration without its state."""
    return object.__new__(_class_of(kind))
