"""tf.train.SequenceExample as protobuf's own library has it, from a descriptor made here: the oracle of our encoder.

The messages are those of TensorFlow's public ``example.proto`` and ``feature.proto``.
"""

from __future__ import annotations

import itertools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {"bytes": _FIELD.TYPE_BYTES, "float": _FIELD.TYPE_FLOAT, "int64": _FIELD.TYPE_INT64}


def _add(message: Any, name: str, number: int, kind: str, *, repeated: bool = False, oneof: bool = False) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = _FIELD.TYPE_STRING if kind == "string" else _FIELD.TYPE_MESSAGE
        if kind != "string":
            field.type_name = f".tensorflow.{kind}"
    if oneof:
        field.oneof_index = 0


def _add_map(message: Any, name: str, number: int, value: str) -> None:
    entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
    entry.options.map_entry = True
    _add(entry, "key", 1, "string")
    _add(entry, "value", 2, value)
    _add(message, name, number, f"{message.name}.{entry.name}", repeated=True)


def _make() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    for kind in _TYPES:
        _add(file.message_type.add(name=f"{kind.capitalize()}List"), "value", 1, kind, repeated=True)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(_TYPES, 1):
        _add(feature, f"{kind}_list", number, f"{kind.capitalize()}List", oneof=True)
    _add_map(file.message_type.add(name="Features"), "feature", 1, "Feature")
    _add(file.message_type.add(name="FeatureList"), "feature", 1, "Feature", repeated=True)
    _add_map(file.message_type.add(name="FeatureLists"), "feature_list", 1, "FeatureList")
    example = file.message_type.add(name="SequenceExample")
    _add(example, "context", 1, "Features")
    _add(example, "feature_lists", 2, "FeatureLists")
    # On the wire, a field that holds bytes and one that holds a message are the same.
    envelope = file.message_type.add(name="Envelope")
    _add(envelope, "context", 1, "bytes")
    _add(envelope, "feature_lists", 2, "bytes")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))
        for name in ("SequenceExample", "Envelope")
    )


SequenceExample, _Envelope = _make()


def _sorted_map(message: Any, field: str) -> bytes:
    """Serialise a message whose only field is a map: entry by entry, since messages that are joined are one."""
    parts = []
    for key in sorted(getattr(message, field), key=str.encode):
        single = type(message)()
        getattr(single, field)[key].CopyFrom(getattr(message, field)[key])
        parts.append(single.SerializeToString())
    return b"".join(parts)


def encode(example: Any) -> bytes:
    """Serialise with the entries of maps sorted by the bytes of their keys.

    It is ``SerializeToString(deterministic=True)``, of which the C implementation of Python's protobuf (7.36) puts a
    key before one that it begins with; those of C++ and in Python do not.
    """
    encoded = bytes(
        _Envelope(
            context=_sorted_map(example.context, "feature"),
            feature_lists=_sorted_map(example.feature_lists, "feature_list"),
        ).SerializeToString()
    )
    assert SequenceExample.FromString(encoded) == example
    keys = sorted(example.feature_lists.feature_list, key=str.encode)
    if not any(after.startswith(key) for key, after in itertools.pairwise(keys)):
        assert encoded == example.SerializeToString(deterministic=True)
    return encoded


def add_step(example: Any, name: str, values: Any) -> None:
    """Add a step of numbers: floating point as floats, others as integers."""
    feature = example.feature_lists.feature_list[name].feature.add()
    target = feature.float_list if values.dtype.kind == "f" else feature.int64_list
    target.value.extend(values.reshape(-1).tolist())
