"""YAML as other recorders write it, read without trusting it.

Rule 1: no tag runs anything. Besides plain values there are exactly the tags that vcrpy writes for
        text, tuples, file-like bodies and iterators; each becomes text, a list or bytes.
Rule 2: what aliases stand for is measured before it is built: a file that means far more than it
        says, or contains itself, is refused.

Knows nothing of cassettes.  Pure.
"""

import functools
from typing import Any

from tapes.errors import ForeignFile, MissingExtra
from tapes.jsontext import Json

try:
    import yaml
except ImportError:
    yaml = None

# What a file may mean once its aliases are written out.
NODES = 10_000_000
TEXT = 1 << 30

_PREFIX = "tag:yaml.org,2002:python/"


def load(text: str) -> Json:
    """The value of one YAML document. Raises ForeignFile, MissingExtra."""
    loader = _loader_class()(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _require_bounded(node)
        return loader.construct_document(node)
    except yaml.constructor.ConstructorError as error:
        raise ForeignFile(
            f"the YAML holds what is no plain value: {error.problem}",
            "take it out, or record the cassette again",
        ) from error
    except yaml.YAMLError as error:
        raise ForeignFile(f"not YAML: {' '.join(str(error).split())[:200]}") from error
    except (RecursionError, ValueError) as error:
        raise ForeignFile(f"the YAML cannot be read: {error}") from error
    finally:
        loader.dispose()


def dump(value: Json) -> str:
    """A value as ASCII YAML, names in the order that they have, no aliases."""
    text: str = yaml_module().dump(value, Dumper=_dumper_class(), sort_keys=False)
    return text


def yaml_module() -> Any:
    """PyYAML. Raises MissingExtra."""
    if yaml is None:
        raise MissingExtra(
            "cassettes in YAML need PyYAML", "install it: pip install 'tapes-py[interchange]'"
        )
    return yaml


@functools.cache
def _loader_class() -> Any:
    base = getattr(yaml_module(), "CSafeLoader", yaml_module().SafeLoader)
    loader: Any = type("_Loader", (base,), {})
    for tag, construct in {
        "str": _text,
        "unicode": _text,
        "tuple": _sequence,
        "object/new:_io.BytesIO": _file,
        "object/apply:builtins.iter": _iterator,
        "object/apply:__builtin__.iter": _iterator,
    }.items():
        loader.add_constructor(_PREFIX + tag, construct)
    return loader


@functools.cache
def _dumper_class() -> Any:
    base = getattr(yaml_module(), "CSafeDumper", yaml_module().SafeDumper)
    return type("_Dumper", (base,), {"ignore_aliases": lambda _self, _value: True})


def _text(loader: Any, node: Any) -> Json:
    return loader.construct_scalar(node)


def _sequence(loader: Any, node: Any) -> Json:
    return loader.construct_sequence(node, deep=True)


def _file(loader: Any, node: Any) -> Json:
    """A file-like body: its state is (content, position, …)."""
    state = loader.construct_mapping(node, deep=True).get("state")
    return state[0] if state else b""


def _iterator(loader: Any, node: Any) -> Json:
    args = loader.construct_mapping(node, deep=True).get("args")
    return list(args[0]) if args else []


def _require_bounded(root: Any) -> None:
    """Count what the document means with every alias written out, each node once."""
    weights: dict[int, tuple[int, int]] = {}
    open_nodes: set[int] = set()
    todo = [(root, False)]
    while todo:
        node, is_leaving = todo.pop()
        identity = id(node)
        if is_leaving:
            open_nodes.discard(identity)
            weights[identity] = _weight(node, weights)
        elif identity in open_nodes:
            raise ValueError("it contains itself")
        elif identity not in weights:
            open_nodes.add(identity)
            todo.append((node, True))
            todo.extend((child, False) for child in _children(node))
    nodes, text = weights[id(root)]
    if nodes > NODES or text > TEXT:
        raise ValueError("its aliases stand for far more than it says")


def _weight(node: Any, weights: dict[int, tuple[int, int]]) -> tuple[int, int]:
    if isinstance(node.value, str):
        return 1, len(node.value)
    parts = [weights[id(child)] for child in _children(node)]
    return 1 + sum(nodes for nodes, _ in parts), sum(text for _, text in parts)


def _children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
